package wire

import (
	"io"
	"strings"
	"testing"
)

// Once content has been read, its buffer goes back: the session may wait long for the spool. What came behind it is kept.
func TestContentGivesItsBufferBack(t *testing.T) {
	for name, c := range map[string]struct {
		octets string
		body   func(*Conn) io.Reader
		behind string
	}{
		"DATA":                        {"x\r\n.\r\n", func(c *Conn) io.Reader { return &dataBody{c: c} }, ""},
		"DATA, and a command with it": {"x\r\n.\r\nQUIT\r\n", func(c *Conn) io.Reader { return &dataBody{c: c} }, "QUIT\r\n"},
		"BDAT":                        {"x\r\n", func(c *Conn) io.Reader { c.chunk, c.lastChunk = 3, true; return &chunkBody{c: c} }, ""},
		"BDAT, and a command with it": {"x\r\nQUIT\r\n", func(c *Conn) io.Reader { c.chunk, c.lastChunk = 3, true; return &chunkBody{c: c} }, "QUIT\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := scripted(strings.NewReader(c.octets))
			content, err := io.ReadAll(c.body(conn))
			if err != nil || string(content) != "x\r\n" {
				t.Fatalf("%q %v", content, err)
			}
			if held := conn.lent != nil; held != (c.behind != "") {
				t.Errorf("it holds a buffer: %t", held)
			}
			if behind := string(conn.buf[conn.r:conn.w]); behind != c.behind {
				t.Errorf("behind the content is %q", behind)
			}
		})
	}
}
