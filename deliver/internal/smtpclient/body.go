package smtpclient

import (
	"bufio"
	"bytes"
	"errors"
	"time"
)

// ErrBareLineEnd means that the content has a CR or LF that stands alone. None ever leaves (promise P7).
var ErrBareLineEnd = errors.New("the content has a bare CR or LF")

// chunk is how much content is sent in one write, in octets.
const chunk = 32 << 10

// Body sends content after a 354: dots are stuffed, the final dot is sent by End alone. (RFC 5321, section 4.5.2.)
type Body struct {
	c       *Conn
	timeout time.Duration
	w       *bufio.Writer
	cr      bool // the last octet was CR
	inLine  bool // the last octet did not end a line
}

// Body starts the content. The time-out is for each write of up to 32 KiB.
func (c *Conn) Body(timeout time.Duration) *Body {
	b := &Body{c: c, timeout: timeout}
	out := writerFunc(func(p []byte) (int, error) {
		if err := c.write(timeout, p); err != nil {
			return 0, err
		}
		return len(p), nil
	})
	if c.out == nil {
		c.out = bufio.NewWriterSize(out, chunk)
	}
	c.out.Reset(out) // its buffer serves all messages of the connection
	b.w = c.out
	return b
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Write implements io.Writer. After an error the connection must be dropped.
func (b *Body) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece, err := b.piece(rest)
		if err == nil {
			_, err = b.w.Write(piece)
		}
		if err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[len(piece):]
	}
	return len(p), nil
}

// piece takes what can be sent at once from the start of p: the LF of a line end, or a line with its CR as far as it is
// there. It stuffs the dot of a line that begins with one.
func (b *Body) piece(p []byte) ([]byte, error) {
	if b.cr {
		if p[0] != '\n' {
			return nil, ErrBareLineEnd
		}
		b.cr, b.inLine = false, false
		return p[:1], nil
	}
	if p[0] == '.' && !b.inLine {
		if err := b.w.WriteByte('.'); err != nil {
			return nil, err
		}
	}
	b.inLine = true
	if at := bytes.IndexByte(p, '\r'); at >= 0 {
		p, b.cr = p[:at+1], true
	}
	if bytes.IndexByte(p, '\n') >= 0 {
		return nil, ErrBareLineEnd
	}
	return p, nil
}

// Flush ends the last line where it has no end and sends all but the final dot. If the connection is closed now, the
// peer takes nothing.
func (b *Body) Flush() error {
	if b.cr {
		return ErrBareLineEnd
	}
	if b.inLine {
		if _, err := b.w.WriteString("\r\n"); err != nil {
			return err
		}
		b.inLine = false
	}
	return b.w.Flush()
}

// End sends the final dot: from here on the peer may take the message. Flush comes first.
func (b *Body) End() error { return b.c.write(b.timeout, []byte(".\r\n")) }
