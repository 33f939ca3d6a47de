package wire

import (
	"errors"
	"io"
)

// normalizer gives out every CR, LF and CRLF of its source as CRLF.
type normalizer struct {
	src    io.Reader
	buf    [1024]byte
	in     []byte // the part of buf that has not been used
	cr     bool   // a CR was given out and its LF not yet
	srcErr error  // sticky
}

// Read implements io.Reader.
func (r *normalizer) Read(p []byte) (n int, err error) {
	for n == 0 && len(p) > 0 {
		if len(r.in) == 0 && r.srcErr == nil {
			var got int
			got, r.srcErr = r.src.Read(r.buf[:])
			r.in = r.buf[:got]
		}
		n = r.convert(p)
		if n == 0 && len(r.in) == 0 && r.srcErr != nil {
			if r.cr && errors.Is(r.srcErr, io.EOF) {
				r.cr = false
				p[0] = '\n'
				return 1, nil
			}
			return 0, r.srcErr
		}
	}
	return n, nil
}

// convert fills p from r.in.
func (r *normalizer) convert(p []byte) (n int) {
	for n < len(p) && len(r.in) > 0 {
		b := r.in[0]
		switch {
		case r.cr:
			p[n], r.cr = '\n', false
			if b == '\n' {
				r.in = r.in[1:]
			}
		case b == '\r':
			p[n], r.cr = b, true
			r.in = r.in[1:]
		case b == '\n':
			p[n], r.cr = '\r', true // its LF comes next
		default:
			p[n] = b
			r.in = r.in[1:]
		}
		n++
	}
	return n
}
