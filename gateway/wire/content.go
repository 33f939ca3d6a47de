package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ContentOptions say what content may be.
type ContentOptions struct {
	Normalize bool  // turn a bare CR or LF into CRLF instead of refusing it
	MaxLine   int   // octets in a line without its CRLF; from 1
	MaxSize   int64 // octets of content; from 1
}

// ContentError says what is wrong with content.
type ContentError struct {
	Kind   ContentErrorKind
	Offset int64 // where it was met, in octets from the start of the content as it came
}

// ContentErrorKind is a fault of content.
type ContentErrorKind string

// The faults.
const (
	BareCR      ContentErrorKind = "bare CR"
	BareLF      ContentErrorKind = "bare LF"
	LongLine    ContentErrorKind = "line too long"
	OverMaxSize ContentErrorKind = "message too big"
)

func (e *ContentError) Error() string { return fmt.Sprintf("%s at octet %d", e.Kind, e.Offset) }

// Content is a message's content as it is to be stored: every line ends with CRLF, no other CR or LF, no line and no
// message over the limits. Read returns a [*ContentError] at the first fault, having given out what came before it or
// less.
type Content struct {
	src    io.Reader
	opts   ContentOptions
	offset int64 // octets looked at
	line   int   // octets in the current line
	cr     bool  // the last octet was a CR that waits for its LF
	err    error // sticky
}

// NewContent checks content that src gives out, without dot-stuffing.
func NewContent(src io.Reader, opts ContentOptions) *Content {
	if opts.Normalize {
		src = &normalizer{src: src}
	}
	return &Content{src: src, opts: opts}
}

// Size returns how many octets have been given out.
func (c *Content) Size() int64 { return c.offset }

// Read implements io.Reader.
func (c *Content) Read(p []byte) (int, error) {
	n := 0
	for n == 0 && c.err == nil && len(p) > 0 {
		var err error
		n, err = c.src.Read(p)
		if fault := c.scan(p[:n]); fault != nil {
			c.err = fault
			return 0, fault
		}
		c.offset += int64(n)
		if c.offset > c.opts.MaxSize {
			c.err = &ContentError{OverMaxSize, c.opts.MaxSize}
			return 0, c.err
		}
		switch {
		case errors.Is(err, io.EOF):
			c.finish()
		case err != nil:
			c.err = err
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, c.err
}

// finish is what the end of the source calls for: a bare CR is a fault, and the last line gets its CRLF, which BDAT does
// not ask of clients but RFC 5322, section 2.3, does of messages.
func (c *Content) finish() {
	switch {
	case c.cr:
		c.err = &ContentError{BareCR, c.offset - 1}
	case c.line > 0:
		c.src = strings.NewReader("\r\n")
	default:
		c.err = io.EOF
	}
}

// scan looks for faults in the next octets.
func (c *Content) scan(p []byte) error {
	for pos := 0; pos < len(p); {
		if c.cr {
			if p[pos] != '\n' {
				return &ContentError{BareCR, c.offset + int64(pos) - 1}
			}
			c.cr, c.line = false, 0
			pos++
			continue
		}
		seg := p[pos:]
		if i := bytes.IndexByte(seg, '\n'); i >= 0 {
			seg = seg[:i]
		}
		cr := bytes.IndexByte(seg, '\r')
		if cr >= 0 {
			seg = seg[:cr]
		}
		c.line += len(seg)
		pos += len(seg)
		switch {
		case c.line > c.opts.MaxLine:
			return &ContentError{LongLine, c.offset + int64(pos)}
		case cr >= 0:
			c.cr = true
			pos++
		case pos < len(p):
			return &ContentError{BareLF, c.offset + int64(pos)}
		}
	}
	return nil
}
