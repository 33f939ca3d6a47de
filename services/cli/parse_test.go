package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const parseMail = "From: Anna <anna@example.org>\nTo: bob@example.net\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n" +
	"Date: Mon, 30 Nov 2026 10:00:00 +0100\nMessage-ID: <1@example.org>\n" +
	"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nHello\x1b[31m.\n--b\nContent-Type: application/x; name=a.bin\n" +
	"Content-Transfer-Encoding: base64\n\nAAEC/w==\n--b--\n"

// TestParseJSON holds the form that scripts rely on.
func TestParseJSON(t *testing.T) {
	t.Parallel()
	got, err := run(t, parseMail, "parse", "--json", "-")
	if err != nil {
		t.Fatal(err)
	}
	want := string(readTestFile(t, filepath.Join("testdata", "parse.json")))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseForms(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mail.eml")
	writeTestFile(t, file, parseMail)
	const tree = "1 multipart/mixed\n  1.1 text/plain, 7bit, 11 octets\n  1.2 application/x, base64, 4 octets, \"a.bin\"\n"
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a tree", []string{"--tree", file}, tree},
		{"two files", []string{"--tree", file, file}, strings.Repeat(file+"\n"+tree, 2)},
		{"an attachment", []string{"--part", "1.2", file}, "\x00\x01\x02\xff"},
		{"a text as it stands", []string{"--part", "1.1", file}, "Hello\x1b[31m."},
		{"for a person, without what drives terminals", []string{file}, "From        Anna <anna@example.org>\nTo          bob@example.net\n" +
			"Subject     Grüße\nDate        2026-11-30 09:00:00 UTC\nMessage-ID  1@example.org\nSize        307 octets\n\n" + tree + "\nHello\uFFFD[31m.\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, "", append([]string{"parse"}, c.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestParseMailbox reads each mail of a mailbox, with the lines that start like a separator.
func TestParseMailbox(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	box := "From anna Mon Nov 30 10:00:00 2026\nSubject: one\n\nFrom here on\n>From there\n>>From afar\n\n\n" +
		"From bob Mon Nov 30 10:00:00 2026\nSubject: two\n\n" + long + "\n\n" +
		"From carol Mon Nov 30 10:00:00 2026\nSubject: three\n\n\nlast\n"
	for _, ends := range []string{"\n", "\r\n"} {
		in := strings.ReplaceAll(box, "\n", ends)
		for number, want := range map[string]string{
			"1": "From here on\nFrom there\n>From afar\n\n",
			"2": long + "\n",
			"3": "\nlast\n",
		} {
			got, err := run(t, in, "parse", "--part", "1", "--number", number, "-")
			if err != nil || got != strings.ReplaceAll(want, "\n", ends) {
				t.Errorf("mail %s: %.80q, %v", number, got, err)
			}
		}
		got, err := run(t, in, "parse", "--json", "-")
		if n := strings.Count(got, `"subject": "`); err != nil || n != 3 || strings.Contains(got, "mbox_from_line") {
			t.Errorf("%d mails, %v", n, err)
		}
	}
}

// TestMailboxSeparator: a line separates mails that tells a sender and when, with the year; not one of a text.
func TestMailboxSeparator(t *testing.T) {
	t.Parallel()
	for line, separates := range map[string]bool{
		"From anna@example.org Mon Nov 30 10:00:00 2026":              true,
		"From - Mon Nov  2 10:00:00 2026":                             true,
		"From MAILER-DAEMON Mon Nov 30 10:00 2026":                    true,
		"From 1@xxx Mon Nov 30 10:00:00 +0000 2026":                   true,
		"From \"a b\"@example.org  Mon Nov 30 10:00:00 CET 2026":      true,
		"From anna@example.org Mon Nov 30 10:00:00 2026 remote x":     true,
		"From anna@example.org Mon, 30 Nov 2026 10:00:00 +0100":       true,
		"From anna Mon, 30-Nov-2026 10:00:00":                         true,
		"From me to you":                                              false,
		"From Monday on we open at 10:00":                             false,
		"From here it is 10:00 at Mon Nov 30":                         false,
		"From 2026 on, at 10:00":                                      false,
		"From anna Mon Nov 30 10:00:00":                               false,
		"From anna Mon Foo 30 10:00:00 2026":                          false,
		"From " + strings.Repeat("a", 300) + " Mon Nov 30 10:00 2026": false,
	} {
		box := "From a Mon Nov 30 10:00:00 2026\n\none\n\n" + line + "\n\ntwo\n"
		_, err := run(t, box, "parse", "--part", "1", "--number", "2", "-")
		if (err == nil) != separates {
			t.Errorf("between mails, %q: %v", line, err)
		}
		got, err := run(t, line+"\n\none\n\nFrom a Mon Nov 30 10:00:00 2026\n\ntwo\n", "parse", "--part", "1", "--number", "1", "-")
		if isOne := got == "one\n"; err != nil || isOne != separates {
			t.Errorf("at the start, %q: %q, %v", line, got, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"absent.eml"}, "", "no such file"},
		{[]string{"--part", "1.7", "-"}, parseMail, "there is no part 1.7"},
		{[]string{"--part", "1", "-", "-"}, "", "--part takes one file"},
		{[]string{"--number", "2", "-"}, parseMail, "has no mail number 2"},
		{[]string{"--number=-1", "-"}, parseMail, "out of range"},
	} {
		_, err := run(t, c.in, append([]string{"parse"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestMailboxFails: an error of the file is told, and no mail is made up.
func TestMailboxFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	box := newMailbox(io.MultiReader(strings.NewReader("From a Mon Nov 30 10:00:00 2026\nSubject: one\n\ntext\n"), iotest.ErrReader(broken)))
	mail, err := box.next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(mail); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	if _, err := box.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("next: %v", err)
	}
}

func readTestFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
