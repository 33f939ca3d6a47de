package parser

import "bytes"

// maxPiece is how many octets of a line are read at once: a longer line comes in pieces, cut at the same places however the
// body comes in.
const maxPiece = 64 << 10

// lineReader decodes line by line.
type lineReader interface {
	// line reads a line with its end, or, where ended is false, a piece of a line that goes on. It appends what it decodes
	// to out, hands it to sink where it becomes too much, and returns what is left.
	line(out, line []byte, ended bool, sink func([]byte)) []byte
	// defect is the kind of a defect once all was read, empty if there was none.
	defect() string
}

// lineDecoder makes lines of the pieces of a body.
type lineDecoder struct {
	reader lineReader
	rest   []byte // the line under way
}

func (d *lineDecoder) write(p []byte, sink func([]byte)) {
	withChunk(func(out []byte) {
		for len(p) > 0 {
			n := min(len(p), maxPiece-len(d.rest))
			end := bytes.IndexByte(p[:n], '\n')
			if end >= 0 {
				n = end + 1
			}
			line := p[:n]
			p = p[n:]
			if len(d.rest) > 0 || end < 0 && n < maxPiece {
				d.rest = append(d.rest, line...)
				line = d.rest
			}
			switch {
			case end >= 0:
				out = d.reader.line(out, line, true, sink)
				d.rest = d.rest[:0]
			case len(line) == maxPiece:
				n := settled(line)
				out = d.reader.line(out, line[:n], false, sink)
				d.rest = append(d.rest[:0], line[n:]...)
			}
		}
		if len(out) > 0 {
			sink(out)
		}
	})
}

func (d *lineDecoder) close(sink func([]byte)) string {
	withChunk(func(out []byte) {
		if len(d.rest) > 0 {
			out = d.reader.line(out, d.rest, true, sink)
		}
		if len(out) > 0 {
			sink(out)
		}
	})
	return d.reader.defect()
}

// settled is how much of a piece means the same whatever follows: all but white space at its end, which may be the line's,
// and an escape that may go on. Of nothing but that it is all.
func settled(piece []byte) int {
	line := bytes.TrimRight(piece, blanks)
	n := len(line)
	if n > 0 && line[n-1] == '=' {
		n--
	} else if n > 1 && n == len(piece) && line[n-2] == '=' {
		n -= 2
	}
	if n == 0 {
		return len(piece)
	}
	return n
}

// blanks are what may be added at the end of a line on the way (RFC 2045, 6.7, rule 3).
const blanks = " \t\r"

// quotedPrintable reads quoted-printable (RFC 2045, 6.7). What is no escape stays as it is.
type quotedPrintable struct {
	invalid bool
}

func (d *quotedPrintable) defect() string {
	if d.invalid {
		return "invalid_quoted_printable"
	}
	return ""
}

func (d *quotedPrintable) line(out, raw []byte, ended bool, sink func([]byte)) []byte {
	line, ending, soft := raw, raw[len(raw):], false
	if ended {
		line, ending, soft = withoutEnd(raw)
	}
	for len(line) > 0 {
		if len(out) >= chunk {
			sink(out)
			out = out[:0]
		}
		e := bytes.IndexByte(line[:min(len(line), slack)], '=')
		if e < 0 {
			e = min(len(line), slack)
			out = append(out, line[:e]...)
			line = line[e:]
			continue
		}
		out = append(out, line[:e]...)
		line = line[e+1:]
		if c, ok := hexPair(line); ok {
			out = append(out, c)
			line = line[2:]
		} else {
			d.invalid = true
			out = append(out, '=')
		}
	}
	if soft {
		return out
	}
	return append(out, ending...)
}

// withoutEnd takes the line end away, white space before it, and the sign of a soft line break.
func withoutEnd(raw []byte) (line, ending []byte, soft bool) {
	n := len(raw)
	if n > 0 && raw[n-1] == '\n' {
		if n--; n > 0 && raw[n-1] == '\r' {
			n--
		}
	}
	line, ending = raw[:n], raw[n:]
	if n > 0 && line[n-1] <= ' ' {
		line = bytes.TrimRight(line, blanks)
	}
	if n = len(line); n > 0 && line[n-1] == '=' {
		return line[:n-1], ending, true
	}
	return line, ending, false
}

// uudecoder reads the lines between "begin" and "end" of POSIX uuencode.
type uudecoder struct {
	begun, ended, damaged bool
	beside                bool // whether there is text before the file or behind it
	inside                bool // whether the next piece goes on with a line whose start was read
}

func (d *uudecoder) defect() string {
	switch {
	case d.begun && d.beside:
		return "ambiguous_uuencode"
	case !d.begun || !d.ended || d.damaged:
		return "invalid_uuencode"
	}
	return ""
}

func (d *uudecoder) line(out, line []byte, ended bool, sink func([]byte)) []byte {
	inside := d.inside
	d.inside = !ended
	line = bytes.TrimRight(line, "\r\n")
	switch {
	case inside: // a line has at most 63 octets
	case !d.begun && bytes.HasPrefix(line, uuBegin[1:]):
		d.begun = true
	case d.ended || !d.begun:
		d.beside = d.beside || len(bytes.TrimSpace(line)) > 0
	case len(line) == 0 || string(line) == "`":
	case string(line) == "end":
		d.ended = true
	default:
		n := int(line[0]-' ') & 63
		d.damaged = d.damaged || len(line)-1 < (n*8+5)/6
		out = appendUU(out, line[1:], n)
	}
	if len(out) >= chunk {
		sink(out)
		out = out[:0]
	}
	return out
}

// appendUU decodes a line of n octets; missing characters count as zero.
func appendUU(out, line []byte, n int) []byte {
	for i := 0; n > 0; i += 4 {
		var v [4]byte
		for k := range v {
			if i+k < len(line) {
				v[k] = (line[i+k] - ' ') & 63
			}
		}
		group := [3]byte{v[0]<<2 | v[1]>>4, v[1]<<4 | v[2]>>2, v[2]<<6 | v[3]}
		out = append(out, group[:min(n, 3)]...)
		n -= 3
	}
	return out
}
