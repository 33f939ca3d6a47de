package deliver_test

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// A removal takes away whole fields of the header section and nothing else, however the content comes in.
func FuzzApply(f *testing.F) {
	f.Add("A: 1\r\nB: 2\r\n c\r\n\r\nA: 1\r\n")
	f.Add("a :\r\n 1\r\n\r\n")
	f.Add("junk\r\n\tA: 1\nA:\n\n")
	f.Fuzz(func(t *testing.T, content string) {
		if strings.Count(content, "\n") != strings.Count(content, "\r\n") {
			return // accepted content has no bare LF
		}
		edits := []*mailv1.Edit{remove("A", "1"), prepend("X", "y")}
		r, err := deliver.Apply(iotest.HalfReader(strings.NewReader(content)), edits)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := "X: y\r\n" + plainRemove(content, "a", "1"); string(got) != want {
			t.Errorf("%q became %q, want %q", content, got, want)
		}
	})
}

// plainRemove is what a removal means, without streaming.
func plainRemove(content, name, prefix string) string {
	var kept strings.Builder
	lines := strings.SplitAfter(content, "\r\n")
	for i := 0; i < len(lines); {
		if lines[i] == "\r\n" {
			kept.WriteString(strings.Join(lines[i:], ""))
			break
		}
		field := lines[i]
		for i++; i < len(lines) && strings.HasPrefix(lines[i]+"x", " ") || i < len(lines) && strings.HasPrefix(lines[i]+"x", "\t"); i++ {
			field += lines[i]
		}
		first, _, _ := strings.Cut(field, "\r\n")
		n, _, ok := strings.Cut(first, ":")
		value := strings.TrimLeft(strings.ReplaceAll(strings.TrimPrefix(field, n+":"), "\r\n", ""), " \t\r\n")
		if ok && strings.EqualFold(strings.TrimRight(n, " \t"), name) && strings.HasPrefix(value, prefix) {
			continue
		}
		kept.WriteString(field)
	}
	return kept.String()
}

func FuzzMailbox(f *testing.F) {
	f.Add("ann@to.test", "../x@..")
	f.Add("a%2Fb@c", "a/b@c")
	f.Fuzz(func(t *testing.T, one, two string) {
		a, b := deliver.Mailbox(one), deliver.Mailbox(two)
		for _, box := range []string{a, b} {
			if !filepath.IsLocal(filepath.FromSlash(box)) || strings.Count(box, "/") != 1 || strings.ContainsAny(box, "\x00\\") || len(box) > 401 {
				t.Fatalf("mailbox %q", box)
			}
		}
		if !strings.Contains(one+two, `"`) && a == b && !bytes.Equal(asciiLower(one), asciiLower(two)) && strings.Contains(one, "@") == strings.Contains(two, "@") {
			t.Fatalf("%q and %q share %q", one, two, a)
		}
	})
}

func asciiLower(s string) []byte {
	out := []byte(s)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}
