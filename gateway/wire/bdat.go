package wire

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// ErrReset is how content by BDAT ends where the client gives the message up: by RSET, by a new greeting, by QUIT.
var ErrReset = errors.New("wire: the client gave the message up")

// chunkBody is the content of BDAT commands up to LAST (RFC 3030, section 2). The library is told of one DATA command
// and sees none of them: its own BDAT runs the session in a second goroutine, whose result may be taken for that of the
// next message (v0.26.0: BDAT, RSET, BDAT).
type chunkBody struct {
	c   *Conn
	err error // sticky
}

// Read gives out the octets of chunks as they are, and between two chunks speaks with the client.
func (b *chunkBody) Read(p []byte) (int, error) {
	c := b.c
	for b.err == nil && len(p) > 0 {
		switch {
		case c.chunk == 0 && c.lastChunk:
			b.err = io.EOF
			c.release() // as at the end of DATA
		case c.chunk == 0:
			c.say("250 2.0.0 Continue")
			b.err = c.nextChunk()
		case c.r == c.w:
			b.err = c.fillData()
		default:
			n := copy(p[:min(int64(len(p)), c.chunk)], c.buf[c.r:c.w])
			c.r += n
			c.chunk -= int64(n)
			return n, nil
		}
	}
	return 0, b.err
}

// skip reads to the end of the current chunk, which is as far as the client's command goes.
func (b *chunkBody) skip() error {
	if errors.Is(b.err, ErrReset) {
		b.c.swallow = true // the client has its reply
		return nil
	}
	return b.c.skipChunk()
}

func (c *Conn) skipChunk() error {
	for c.chunk > 0 {
		if c.r == c.w {
			if err := c.fillData(); err != nil {
				return err
			}
		}
		n := min(int64(c.w-c.r), c.chunk)
		c.r += int(n)
		c.chunk -= n
	}
	return nil
}

// fairChunk is from what size on, in octets, a chunk does not count as a command: 50 MB in chunks of 16 KiB are 3 000 of them.
const fairChunk = 1 << 10

// nextChunk waits for the next BDAT command and answers what may come between two of them.
func (c *Conn) nextChunk() error {
	for {
		if c.hangUp { // the client has been told, and the library's reply would be one too many
			_ = c.flush() // as in lastWords
			return c.fail(ErrEnded)
		}
		if err := c.readLine(); err != nil {
			return ended(err)
		}
		if c.line == nil || !c.inspectForm() {
			continue
		}
		switch c.verb {
		case "BDAT":
			if c.inspectBDAT() {
				if c.chunk >= fairChunk {
					c.commands-- // content, and bounded as such
				}
				return nil
			}
		case "RSET":
			c.say("250 2.0.0 Session reset")
			return ErrReset
		case "QUIT", "EHLO", "HELO":
			c.held = true // for the library, after the end of this message
			return ErrReset
		case "NOOP":
			c.say("250 2.0.0 Ok")
		default:
			c.refuse("503 5.5.1 BDAT under way")
		}
	}
}

// inspectBDAT notes the size of the chunk that follows the command line. Where that can't be read the connection has to
// be closed, since nobody knows where commands go on (case D6).
func (c *Conn) inspectBDAT() bool {
	_, args, _ := strings.Cut(c.text, " ")
	f := strings.Fields(args)
	if len(f) == 1 || len(f) == 2 && strings.EqualFold(f[1], "LAST") {
		if size, err := strconv.ParseUint(f[0], 10, 32); err == nil {
			c.chunk, c.lastChunk = int64(size), len(f) == 2
			return true
		}
	}
	c.refuse("501 5.5.4 Malformed BDAT, closing connection")
	c.hangUp = true
	return false
}
