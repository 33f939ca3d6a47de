package parser

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestViews: what two readers read in two ways is read as the widespread clients do, and says so.
func TestViews(t *testing.T) {
	t.Parallel()
	const multipart = "Content-Type: multipart/mixed; boundary=b\n\n"
	for _, c := range []struct {
		name, content string
		kinds         string
		text, html    string
	}{
		{"a line of white space in a header section", "Subject: s\n \nContent-Type: text/html\n\n<p>x", "ambiguous_header_end", "x", "<p>x"},
		{"a line that is no field among fields", "Subject: s\njunk\nContent-Type: text/html\n\n<p>x", "malformed_header ambiguous_header_end", "x", "<p>x"},
		{"a line that is no field behind fields", "Subject: s\njunk\n\nx", "malformed_header ambiguous_header_end", "x", ""},
		{"white space before a colon", "Subject: s\nContent-Type : text/html\n\n<p>x", "space_before_colon ambiguous_header_end", "x", "<p>x"},
		{"a part of one line", multipart + "--b\nhello\n--b--\n", "malformed_header ambiguous_header_end", "hello", ""},
		{"a part of a field and a line", multipart + "--b\nContent-Type: text/html\n<p>x\n--b--\n", "malformed_header ambiguous_header_end", "x", "<p>x"},
		{"a content of a field and a line", "Subject: s\nx", "malformed_header ambiguous_header_end", "x", ""},
		{"a content of one line", "x", "malformed_header ambiguous_header_end", "x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			content := []byte(c.content)
			if !strings.Contains(c.content, "\r") {
				content = crlf(c.content)
			}
			m := check(t, content, Limits{})
			if diff := cmp.Diff(c.kinds, strings.Join(kinds(m), " ")); diff != "" {
				t.Errorf("defects: %s", diff)
			}
			if m.GetText() != c.text || m.GetHtml() != c.html {
				t.Errorf("got text %q, HTML %q", m.GetText(), m.GetHtml())
			}
		})
	}
}

// TestBodyWithoutHeader: a part that is a line without header section is counted and hashed as any other, folds included.
func TestBodyWithoutHeader(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"hello http://evil.example", "hello" + strings.Repeat("\r\n more", 1000)} {
		content := "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" + body + "\r\n--b--\r\n"
		p := check(t, []byte(content), Limits{}).GetParts()[0].GetParts()[0]
		sum := sha256.Sum256([]byte(body))
		if size := int64(len(body)); p.GetRawSize() != size || p.GetSize() != size || !bytes.Equal(p.GetSha256(), sum[:]) {
			t.Errorf("sizes %d and %d, want %d; hash %x", p.GetRawSize(), p.GetSize(), size, p.GetSha256())
		}
	}
}
