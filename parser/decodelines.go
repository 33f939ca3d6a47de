package parser

import "bytes"

// maxPiece is how many octets of a line are kept until its end comes.
const maxPiece = 1 << 20

// lineFeed makes lines of the pieces of a body. A line that is longer than maxPiece comes in parts.
type lineFeed struct {
	rest []byte
}

// write calls each for every line that has its end.
func (l *lineFeed) write(p []byte, each func(line []byte)) {
	for len(p) > 0 {
		j := bytes.IndexByte(p, '\n')
		if j < 0 {
			if l.rest = append(l.rest, p...); len(l.rest) > maxPiece {
				// What may be the start of an escape stays.
				n := len(l.rest) - 3
				each(l.rest[:n])
				l.rest = append(l.rest[:0], l.rest[n:]...)
			}
			return
		}
		line := p[:j+1]
		p = p[j+1:]
		if len(l.rest) > 0 {
			l.rest = append(l.rest, line...)
			line = l.rest
		}
		each(line)
		l.rest = l.rest[:0]
	}
}

// close calls each for a last line without end.
func (l *lineFeed) close(each func(line []byte)) {
	if len(l.rest) > 0 {
		each(l.rest)
	}
}

// quotedPrintable reads quoted-printable (RFC 2045, 6.7). What is no escape stays as it is.
type quotedPrintable struct {
	lines   lineFeed
	invalid bool
}

func (d *quotedPrintable) write(p []byte, sink func([]byte)) {
	withChunk(func(out []byte) {
		d.lines.write(p, func(line []byte) { out = d.line(out, line, sink) })
		if len(out) > 0 {
			sink(out)
		}
	})
}

func (d *quotedPrintable) close(sink func([]byte)) string {
	withChunk(func(out []byte) {
		d.lines.close(func(line []byte) { out = d.line(out, line, sink) })
		if len(out) > 0 {
			sink(out)
		}
	})
	if d.invalid {
		return "invalid_quoted_printable"
	}
	return ""
}

func (d *quotedPrintable) line(out, raw []byte, sink func([]byte)) []byte {
	line, ending := raw, raw[len(raw):]
	if n := len(raw); n > 0 && raw[n-1] == '\n' {
		if n--; n > 0 && raw[n-1] == '\r' {
			n--
		}
		line, ending = raw[:n], raw[n:]
	}
	// White space at the end of a line was added on the way (rule 3).
	if n := len(line); n > 0 && line[n-1] <= ' ' {
		line = bytes.TrimRight(line, " \t\r")
	}
	soft := len(line) > 0 && line[len(line)-1] == '='
	if soft {
		line = line[:len(line)-1]
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
		if len(line) > e+2 && unhex(line[e+1]) < 16 && unhex(line[e+2]) < 16 {
			out = append(out, unhex(line[e+1])<<4|unhex(line[e+2]))
			line = line[e+3:]
		} else {
			d.invalid = true
			out = append(out, '=')
			line = line[e+1:]
		}
	}
	if soft {
		return out
	}
	return append(out, ending...)
}

// uudecoder reads the lines between "begin" and "end" of POSIX uuencode.
type uudecoder struct {
	lines                 lineFeed
	begun, ended, damaged bool
}

func (d *uudecoder) write(p []byte, sink func([]byte)) {
	withChunk(func(out []byte) {
		d.lines.write(p, func(line []byte) { out = d.line(out, line, sink) })
		if len(out) > 0 {
			sink(out)
		}
	})
}

func (d *uudecoder) close(sink func([]byte)) string {
	withChunk(func(out []byte) {
		d.lines.close(func(line []byte) { out = d.line(out, line, sink) })
		if len(out) > 0 {
			sink(out)
		}
	})
	if !d.begun || !d.ended || d.damaged {
		return "invalid_uuencode"
	}
	return ""
}

func (d *uudecoder) line(out, line []byte, sink func([]byte)) []byte {
	line = bytes.TrimRight(line, "\r\n")
	switch {
	case d.ended:
	case !d.begun:
		d.begun = bytes.HasPrefix(line, []byte("begin "))
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
