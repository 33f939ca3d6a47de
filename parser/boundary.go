package parser

import "bytes"

// bound is the boundary of an open multipart.
type bound struct {
	text   string
	part   string // the path of the multipart
	closed bool   // whether the multipart has ended, so that it has no delimiters any more
}

// delimiter is the line that ended a body, or the end of the source.
type delimiter struct {
	level   int  // the index of its boundary, -1 for the end of the source
	closing bool // whether it ends its multipart
	end     int  // where the body before it ends: the line end before a delimiter belongs to it (RFC 2046, 5.1.1)
	next    int  // where the line after it starts
}

var dashes = []byte("--")

// next finds the next delimiter of any open multipart at or after from, which is the start of a line. What lies before
// it goes to the taps.
func (s *source) next(from int) delimiter {
	for i := from; len(s.bounds) > 0; {
		i = s.dashes(i)
		if i < 0 {
			break
		}
		switch {
		case i == from || s.data[i-1-s.base] == '\n':
			if d, ok := s.match(i); ok {
				d.end = s.lineEndBefore(i, from)
				return d
			}
		case s.data[i-1-s.base] == '\r':
			s.matchBehind(i, "ambiguous_bare_cr")
		case s.data[i-1-s.base] == 0:
			s.matchBehind(i, "ambiguous_nul")
		}
		for i++; i < s.end() && s.data[i-s.base] == '-'; i++ { // a long rule is one place
		}
	}
	for s.stream != nil {
		s.drop(s.end())
		s.more()
	}
	return delimiter{level: -1, end: s.end(), next: s.end()}
}

// dashes finds two hyphens at or after i, -1 where there are none. The window keeps a line end before them.
func (s *source) dashes(i int) int {
	for {
		if j := bytes.Index(s.from(i), dashes); j >= 0 {
			return i + j
		}
		if s.stream == nil {
			return -1
		}
		// The last octets may be a line end and the first hyphen.
		i = max(i, s.end()-1)
		s.drop(max(i-2, s.base))
		s.more()
	}
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

// fit is how a line matches a boundary.
type fit int

const (
	noFit    fit = iota
	prefixed     // the line goes on
	loosely      // something stands behind white space
	fully
)

// fits tells how a line, of which next is negative where it is longer than what is seen of it, matches a boundary, and whether
// it is the one that ends the multipart.
func (b *bound) fits(line []byte, next int) (how fit, closing bool) {
	if !startsWith(line, b.text) {
		return noFit, false
	}
	rest := bytes.TrimRight(line[len(b.text):], " \t\r")
	switch {
	case next < 0: // no line of a mail is as long as that
		return prefixed, false
	case len(rest) == 0:
		return fully, false
	case string(rest) == "--":
		return fully, true
	case isSpace(rest[0]):
		return loosely, false
	case len(rest) > 2 && rest[0] == '-' && rest[1] == '-' && isSpace(rest[2]):
		return loosely, true
	}
	return prefixed, false
}

// match tells whether the line at i is a delimiter. The inner boundary wins where several match, but a full match
// wins over one with text behind it: one boundary may be the beginning of another.
func (s *source) match(i int) (delimiter, bool) {
	for s.end() < i+2 && s.more() {
	}
	if !bytes.HasPrefix(s.from(i), dashes) {
		return delimiter{}, false
	}
	line, next := s.line(i)
	line = bytes.TrimRight(line[2:], "\r\n")
	best, d, late := noFit, delimiter{next: next}, -1
	for level := len(s.bounds) - 1; level >= 0; level-- {
		b := &s.bounds[level]
		how, closing := b.fits(line, next)
		if b.closed {
			if how > prefixed && !closing {
				late = level
			}
			continue
		}
		if how > prefixed && best > prefixed && b.text != s.bounds[d.level].text {
			s.odd("ambiguous_boundary_twice", b.part, i, line)
		}
		if how > best {
			best, d.level, d.closing = how, level, closing
		}
	}
	switch {
	case best == loosely:
		s.odd("ambiguous_boundary_text", s.bounds[d.level].part, i, line)
	case best == prefixed:
		s.odd("ambiguous_boundary_prefix", s.bounds[d.level].part, i, line)
	case best == noFit && late >= 0:
		s.odd("ambiguous_epilogue", s.bounds[late].part, i, line)
	}
	return d, best > prefixed
}

// matchBehind notes what is a delimiter at i for a reader that takes the octet before it for a line end, or for nothing.
func (s *source) matchBehind(i int, kind string) {
	for _, b := range s.bounds {
		for end := i + len(dashes) + len(b.text); s.end() < end && s.more(); {
		}
		if text := s.from(i + len(dashes)); !b.closed && startsWith(text, b.text) {
			s.odd(kind, b.part, i, text[:len(b.text)])
			return
		}
	}
}

func startsWith(b []byte, start string) bool {
	return len(b) >= len(start) && string(b[:len(start)]) == start
}

// odd notes a line that looks like a delimiter of a part and may be read in two ways.
func (s *source) odd(kind, part string, at int, line []byte) {
	r := s.reader
	if r.noted[kind] == 0 {
		r.defect(kind, severe, r.place(s, part, at), "%s", excerpt(line))
	}
}
