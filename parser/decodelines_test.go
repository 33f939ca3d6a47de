package parser

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
)

// TestLongEncodedLines: a line of any length is decoded as if it had been read at once, in memory and from a stream.
func TestLongEncodedLines(t *testing.T) {
	t.Parallel()
	const many = 3*maxPiece + 1
	for _, c := range []struct{ name, body, want string }{
		{"escapes", strings.Repeat("=41", many) + "x", strings.Repeat("A", many) + "x"},
		{"escapes behind an octet", "x" + strings.Repeat("=41", many), "x" + strings.Repeat("A", many)},
		{"escapes behind two octets", "xx" + strings.Repeat("=41", many), "xx" + strings.Repeat("A", many)},
		{"white space inside", strings.Repeat("a ", many) + "x\r\n", strings.Repeat("a ", many) + "x\r\n"},
		{"white space at the end", strings.Repeat("a", maxPiece-1) + "   \r\nx", strings.Repeat("a", maxPiece-1) + "\r\nx"},
		{"a soft line break", strings.Repeat("a", maxPiece-1) + "=  \r\nx", strings.Repeat("a", maxPiece-1) + "x"},
		{"a soft line break at the end", strings.Repeat("a", maxPiece-1) + "=\r\nx", strings.Repeat("a", maxPiece-1) + "x"},
		{"a bare CR", strings.Repeat("a", maxPiece-1) + "\rx", strings.Repeat("a", maxPiece-1) + "\rx"},
		{"a line of one piece", strings.Repeat("a", maxPiece-2) + "\r\nx", strings.Repeat("a", maxPiece-2) + "\r\nx"},
		{"a line of one piece and its end", strings.Repeat("a", maxPiece) + "\r\nx", strings.Repeat("a", maxPiece) + "\r\nx"},
		{"an escape at the end of the body", strings.Repeat("a", maxPiece-2) + "=41", strings.Repeat("a", maxPiece-2) + "A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := check(t, []byte("Content-Type: x/y\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"+c.body), Limits{}).GetParts()[0]
			sum := sha256.Sum256([]byte(c.want))
			if p.GetSize() != int64(len(c.want)) || !bytes.Equal(p.GetSha256(), sum[:]) {
				t.Errorf("%d octets, want %d, or others", p.GetSize(), len(c.want))
			}
		})
	}
	t.Run("white space without end", func(t *testing.T) {
		t.Parallel()
		check(t, []byte("Content-Transfer-Encoding: quoted-printable\r\n\r\n="+strings.Repeat(" ", 2*many)+"\r\n"), Limits{})
	})
	t.Run("uuencode", func(t *testing.T) {
		t.Parallel()
		content := "Content-Type: x/y\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\nbegin 644 a\r\n#86)C" + strings.Repeat("#", many) + "\r\n`\r\nend\r\n"
		if p := check(t, []byte(content), Limits{}).GetParts()[0]; p.GetSize() != 3 {
			t.Errorf("%d octets, want 3", p.GetSize())
		}
	})
}
