package parser

import "bytes"

// bound is the boundary of an open multipart.
type bound struct {
	text []byte
	part string // the path of the multipart
}

// delimiter is the line that ended a body, or the end of the source.
type delimiter struct {
	level   int  // the index of its boundary, -1 for the end of the source
	closing bool // whether it ends its multipart
	end     int  // where the body before it ends: the line end before a delimiter belongs to it (RFC 2046, 5.1.1)
	next    int  // where the line after it starts
}

var lineDashes = []byte("\n--")

// next finds the next delimiter of any open multipart at or after from, which is the start of a line. What lies before
// it goes to the taps.
func (s *source) next(from int) delimiter {
	for i := from; len(s.bounds) > 0; {
		if d, ok := s.match(i); ok {
			d.end = s.lineEndBefore(i, from)
			return d
		}
		j := bytes.Index(s.from(i), lineDashes)
		for j < 0 && s.stream != nil {
			// The last octets may be the start of a delimiter, and the line end before it.
			i = max(i, s.end()-2)
			s.drop(max(i-1, s.base))
			s.more()
			j = bytes.Index(s.from(i), lineDashes)
		}
		if j < 0 {
			break
		}
		i += j + 1
	}
	for s.stream != nil {
		s.drop(s.end())
		s.more()
	}
	return delimiter{level: -1, end: s.end(), next: s.end()}
}

// lineEndBefore is where the line end in front of i starts, but not before from.
func (s *source) lineEndBefore(i, from int) int {
	if i > from && s.data[i-1-s.base] == '\n' {
		i--
		if i > from && s.data[i-1-s.base] == '\r' {
			i--
		}
	}
	return i
}

// match tells whether the line at i is a delimiter. The inner boundary wins where several match, but a full match
// wins over one with text behind it: one boundary may be the beginning of another.
func (s *source) match(i int) (delimiter, bool) {
	for s.end() < i+2 && s.more() {
	}
	if !bytes.HasPrefix(s.from(i), lineDashes[1:]) {
		return delimiter{}, false
	}
	line, next := s.line(i)
	line = bytes.TrimRight(line[2:], "\r\n")
	loose, prefix := -1, -1
	for level := len(s.bounds) - 1; level >= 0; level-- {
		b := s.bounds[level].text
		if !bytes.HasPrefix(line, b) {
			continue
		}
		rest := bytes.TrimRight(line[len(b):], " \t\r")
		switch {
		case next < 0: // no line of a mail is as long as that
			prefix = level
		case len(rest) == 0:
			return delimiter{level: level, next: next}, true
		case string(rest) == "--":
			return delimiter{level: level, closing: true, next: next}, true
		case loose < 0 && (isSpace(rest[0]) || len(rest) > 2 && rest[0] == '-' && rest[1] == '-' && isSpace(rest[2])):
			loose = level
		default:
			prefix = level
		}
	}
	if loose >= 0 {
		s.odd("ambiguous_boundary_text", s.bounds[loose].part, i, line)
		return delimiter{level: loose, closing: line[len(s.bounds[loose].text)] == '-', next: next}, true
	}
	if prefix >= 0 {
		s.odd("ambiguous_boundary_prefix", s.bounds[prefix].part, i, line)
	}
	return delimiter{}, false
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }
