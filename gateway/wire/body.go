package wire

import (
	"bytes"
	"errors"
	"io"
)

// dataBody is the content of DATA with dots unstuffed. It ends with io.EOF at CRLF.CRLF and nowhere else (RFC 5321,
// sections 4.1.1.4 and 4.5.2). Everything else stays as it is, a CR or LF that stands alone included.
type dataBody struct {
	c     *Conn
	state bodyState
	err   error // sticky
}

type bodyState int

const (
	lineStart bodyState = iota // after CRLF, or nothing read
	inLine
	afterCR
	afterDot   // . at the start of a line, not given out
	afterDotCR // and a CR behind it, not given out
)

// Read gives out content. The connection's replies are written before it waits for the client.
func (b *dataBody) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && b.err == nil {
		if b.c.r == b.c.w {
			if n > 0 {
				return n, nil
			}
			b.err = b.c.fillData()
			continue
		}
		used, given := b.step(b.c.buf[b.c.r:b.c.w], p[n:])
		b.c.r += used
		n += given
	}
	if errors.Is(b.err, io.EOF) {
		b.c.release() // the session may wait long for the spool
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

// step takes octets from src and gives some to dst, neither of which is empty.
func (b *dataBody) step(src, dst []byte) (used, given int) {
	switch b.state {
	case lineStart:
		if src[0] == '.' {
			b.state = afterDot
			return 1, 0
		}
		b.state = inLine
	case inLine:
		// Only a CR can change anything; all before it passes at once.
		end := bytes.IndexByte(src, '\r') + 1
		if end == 0 {
			end = len(src)
		}
		n := copy(dst, src[:end])
		if src[n-1] == '\r' {
			b.state = afterCR
		}
		return n, n
	case afterCR:
		switch src[0] {
		case '\n':
			b.state = lineStart
		case '\r': // CR CR LF is a CR and a CRLF (case D1)
		default:
			b.state = inLine
			return 0, 0
		}
		dst[0] = src[0]
		return 1, 1
	case afterDot:
		if src[0] == '\r' {
			b.state = afterDotCR
			return 1, 0
		}
		b.state = inLine
	case afterDotCR:
		if src[0] == '\n' {
			b.err = io.EOF
			return 1, 0
		}
		b.state = afterCR // the CR stands alone and is content (case D2)
		dst[0] = '\r'
		return 0, 1
	}
	return 0, 0
}

// skip reads on to the end mark.
func (b *dataBody) skip() error {
	_, err := io.Copy(io.Discard, b)
	return err
}
