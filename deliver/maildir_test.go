package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// box reads a folder of a mailbox: the files by name.
func box(t *testing.T, root, address, sub string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	dir := filepath.Join(root, filepath.FromSlash(deliver.Mailbox(address)), sub)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

// only returns the one file.
func only(t *testing.T, files map[string]string) (name, content string) {
	t.Helper()
	if len(files) != 1 {
		t.Fatalf("%d files, want 1: %v", len(files), files)
	}
	for name, content = range files {
		return name, content
	}
	return "", ""
}

func TestMaildir(t *testing.T) {
	for name, content := range map[string]string{
		"plain":               "Subject: x\r\n\r\n.\r\n..dots\r\n",
		"headers only":        "Subject: x\r\n",
		"zero octets":         "",
		"binary, no line end": "Subject: x\r\n\r\n\x00\xff bare\r and \n end",
		"large":               "Subject: x\r\n\r\n" + strings.Repeat("0123456789\r\n", 300_000),
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "made", "on demand")
			p := &permits{}
			task := newTask(content, p, "Ann@To.test", "bob@to.test")
			task.Edits = []*mailv1.Edit{prepend("Received", "from x\r\n\tby y")}
			a, n := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), task)
			wantStatus(t, a, "dd")
			if len(n) != 0 || p.asked.Load() != 1 || a.GetRoute() != "maildir" || a.GetRemote() != root {
				t.Errorf("%d notifications, %d permits, route %q to %q", len(n), p.asked.Load(), a.GetRoute(), a.GetRemote())
			}
			for _, r := range task.Envelope.GetRecipients() {
				_, got := only(t, box(t, root, r.GetAddress(), "new"))
				want := "Return-Path: <sender@from.test>\r\nDelivered-To: " + r.GetAddress() + "\r\n" +
					"Received: from x\r\n\tby y\r\n" + content
				if got != want {
					t.Errorf("%s: %d octets, want %d: %.300q", r.GetAddress(), len(got), len(want), got)
				}
				if all := append(append([]*mailv1.Edit(nil), task.Edits...), deliver.FinalEdits(task.Envelope, r.GetAddress())...); edited(t, content, all...) != got {
					t.Error("FinalEdits don't tell what is delivered")
				}
				if left := box(t, root, r.GetAddress(), "tmp"); len(left) != 0 {
					t.Errorf("left in tmp: %v", left)
				}
			}
		})
	}
}

// An attempt after one whose outcome is not known overwrites; what a reader moved on is not delivered again.
func TestMaildirAgain(t *testing.T) {
	root := t.TempDir()
	d := newDeliverer(t, nil, toMaildir(root, "*"))
	task := newTask("Subject: x\r\n\r\n", &permits{}, "ann@to.test")
	for range 2 {
		a, _ := attempt(t, d, task)
		wantStatus(t, a, "d")
	}
	name, _ := only(t, box(t, root, "ann@to.test", "new"))
	if !strings.HasPrefix(name, messageID) {
		t.Errorf("file name %q does not start with the message id", name)
	}
	dir := filepath.Join(root, filepath.FromSlash(deliver.Mailbox("ann@to.test")))
	if err := os.Rename(filepath.Join(dir, "new", name), filepath.Join(dir, "cur", name+":2,S")); err != nil {
		t.Fatal(err)
	}
	a, _ := attempt(t, d, task)
	wantStatus(t, a, "d")
	if left := box(t, root, "ann@to.test", "new"); len(left) != 0 {
		t.Errorf("delivered again: %v", left)
	}

	other := task
	other.MessageID = "01934f5e-7a10-7cc0-8000-ffffffffffff"
	a, _ = attempt(t, d, other)
	wantStatus(t, a, "d")
	only(t, box(t, root, "ann@to.test", "new"))
}

func TestMaildirCrashLeftovers(t *testing.T) {
	root := t.TempDir()
	tmp := filepath.Join(root, filepath.FromSlash(deliver.Mailbox("ann@to.test")), "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 40 * time.Hour, messageID + ".young": time.Hour} {
		path := filepath.Join(tmp, name)
		if err := os.WriteFile(path, []byte("half a mess"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, clock().Add(-age), clock().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), newTask("Subject: x\r\n\r\n", &permits{}, "ann@to.test"))
	wantStatus(t, a, "d")
	if _, got := only(t, box(t, root, "ann@to.test", "new")); !strings.HasSuffix(got, "Subject: x\r\n\r\n") {
		t.Errorf("delivered %q", got)
	}
	// The young one may belong to a process that lives.
	if name, _ := only(t, box(t, root, "ann@to.test", "tmp")); name != messageID+".young" {
		t.Errorf("left in tmp: %s", name)
	}
}

func TestMaildirWithoutPermit(t *testing.T) {
	root := t.TempDir()
	p := &permits{err: errNo}
	a, n := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), newTask("Subject: x\r\n\r\n", p, "ann@to.test", "bob@to.test"))
	wantStatus(t, a, "nn")
	if p.asked.Load() != 1 || len(n) != 0 {
		t.Errorf("asked %d times, %d notifications", p.asked.Load(), len(n))
	}
	for _, r := range []string{"ann@to.test", "bob@to.test"} {
		if left := len(box(t, root, r, "new")) + len(box(t, root, r, "tmp")); left != 0 {
			t.Errorf("%s: %d files", r, left)
		}
	}
}

// Content that can't be read, or is not whole, is a failure of the worker: nothing is delivered, no permit is asked
// (cases A4, A6).
func TestContentFailure(t *testing.T) {
	open := func(r io.Reader, err error) func(context.Context) (io.ReadCloser, error) {
		return func(context.Context) (io.ReadCloser, error) {
			if err != nil {
				return nil, err
			}
			return io.NopCloser(r), nil
		}
	}
	for _, c := range []struct {
		name    string
		content func(context.Context) (io.ReadCloser, error)
		is      error
	}{
		{"open fails", open(nil, errNo), errNo},
		{"read fails", open(io.MultiReader(strings.NewReader("Subj"), iotest.ErrReader(errNo)), nil), errNo},
		{"too short", open(strings.NewReader("Subject:"), nil), nil},
		{"too long", open(strings.NewReader("Subject: x\r\n\r\nmore"), nil), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			p := &permits{}
			task := newTask("Subject: x\r\n\r\n", p, "ann@to.test", "bob@to.test")
			task.Content = c.content
			a, _, err := newDeliverer(t, nil, toMaildir(root, "*")).Attempt(t.Context(), task)
			if err == nil || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("Attempt: %v, want an error", err)
			}
			wantStatus(t, a, "tt")
			if p.asked.Load() != 0 || len(box(t, root, "ann@to.test", "new")) != 0 || len(box(t, root, "ann@to.test", "tmp")) != 0 {
				t.Error("something was delivered or asked for")
			}
		})
	}
	t.Run("unknown edit", func(t *testing.T) {
		task := newTask("Subject: x\r\n\r\n", &permits{}, "ann@to.test")
		task.Edits = []*mailv1.Edit{{}}
		a, _ := attempt(t, newDeliverer(t, nil, toMaildir(t.TempDir(), "*")), task)
		wantStatus(t, a, "t")
	})
}

// A path that can't be a folder defers and tells strangers nothing of it.
func TestMaildirBroken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &permits{}
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(file, "*")), newTask("Subject: x\r\n\r\n", p, "ann@to.test"))
	wantStatus(t, a, "t")
	if text := a.GetResults()[0].GetReply().GetText(); strings.Contains(text, file) {
		t.Errorf("the reply names the path: %s", text)
	}
	if p.asked.Load() != 0 {
		t.Error("the permit was asked for nothing")
	}
}

func TestHundredRecipients(t *testing.T) {
	root := t.TempDir()
	var recipients []string
	for i := range 100 {
		recipients = append(recipients, fmt.Sprintf("user%d@to.test", i))
	}
	p := &permits{}
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), newTask("Subject: x\r\n\r\nbody\r\n", p, recipients...))
	wantStatus(t, a, strings.Repeat("d", 100))
	for _, r := range recipients {
		if _, got := only(t, box(t, root, r, "new")); !strings.Contains(got, "Delivered-To: "+r+"\r\n") || !strings.HasSuffix(got, "Subject: x\r\n\r\nbody\r\n") {
			t.Fatalf("%s: %q", r, got)
		}
	}
	if p.asked.Load() != 1 {
		t.Errorf("asked %d times", p.asked.Load())
	}
}

func TestMailbox(t *testing.T) {
	long := strings.Repeat("a", 300)
	seen := make(map[string]string)
	for _, c := range []struct{ address, want string }{
		{"ann@to.test", "to.test/ann"},
		{"ann.b+tag@to.test", "to.test/ann.b+tag"},
		{"../../etc/passwd@to.test", "to.test/%2E.%2F..%2Fetc%2Fpasswd"},
		{"..@..", "%2E./%2E."},
		{".@.", "%2E/%2E"},
		{"/@/", "%2F/%2F"},
		{"a\x00b@to.test", "to.test/a%00b"},
		{"a%2Fb@to.test", "to.test/a%252fb"},
		{"a/b@to.test", "to.test/a%2Fb"},
		{`a\b@to.test`, "to.test/a%5Cb"},
		{"postmaster", "%none/postmaster"},
		{"@to.test", "to.test/%none"},
		{"ann@[127.0.0.1]", "%5B127.0.0.1%5D/ann"},
		{"j\u00f6rg@to.test", "to.test/j%C3%B6rg"},
		{"\u212aate@to.test", "to.test/%E2%84%AAate"}, // KELVIN SIGN is no k
		{"kate@to.test", "to.test/kate"},
		{`"a@b"@to.test`, "to.test/a%40b"},
		{`"a \"b"@to.test`, "to.test/a%20%22b"},
		{"%none@to.test", "to.test/%25none"},
	} {
		got := deliver.Mailbox(c.address)
		if got != c.want {
			t.Errorf("Mailbox(%q) = %q, want %q", c.address, got, c.want)
		}
		if before, ok := seen[got]; ok {
			t.Errorf("%q and %q share %q", before, c.address, got)
		}
		seen[got] = c.address
		if !filepath.IsLocal(filepath.FromSlash(got)) || strings.Count(got, "/") != 1 {
			t.Errorf("Mailbox(%q) = %q leads elsewhere", c.address, got)
		}
	}
	for _, same := range [][2]string{{"Ann@To.Test", "ann@to.test"}, {`"ann"@to.test`, "ann@to.test"}} {
		if deliver.Mailbox(same[0]) != deliver.Mailbox(same[1]) {
			t.Errorf("%s and %s should share a mailbox", same[0], same[1])
		}
	}
	one, two := deliver.Mailbox(long+"1@to.test"), deliver.Mailbox(long+"2@to.test")
	if one == two || len(one) > 250 {
		t.Errorf("long names: %q, %q", one, two)
	}
}

// A symbolic link in the mail folder leads nobody out of it.
func TestMaildirSymlink(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "to.test")); err != nil {
		t.Fatal(err)
	}
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), newTask("Subject: x\r\n\r\n", &permits{}, "ann@to.test"))
	wantStatus(t, a, "t")
	entries, err := os.ReadDir(outside)
	if diff := cmp.Diff(0, len(entries)); err != nil || diff != "" {
		t.Errorf("written outside: %v, %v", entries, err)
	}
}
