package parser

import (
	"bytes"
	"io"
)

// source is a string of octets that entities are read from: the content, or the decoded body of a nested message. It is
// a window on a stream, or all of it where the octets are in memory. Offsets count from the start of the stream.
type source struct {
	data   []byte    // the octets from base on
	base   int       // the offset of data[0]
	stream io.Reader // what comes behind data; nil where nothing does
	err    error     // why the stream ended, where it did not end by itself
	// nested is whether it is a decoded body, so that its offsets say nothing about the content.
	nested bool
	// maxLine is how many octets of a line are looked at where its text matters.
	maxLine int
	// bounds are the boundaries of the multiparts that are open, the outermost first. A line that matches any of them
	// ends everything inside it.
	bounds []bound
	// taps get what the window has passed.
	taps []tap
	// reader is who reads it.
	reader *reader
	// room is for the bounds and taps of most.
	room struct {
		bounds [3]bound
		taps   [3]tap
	}
}

// readSize is how many octets a stream is asked for at once.
const readSize = 64 << 10

// maxEmptyReads is how often in a row a stream may give nothing.
const maxEmptyReads = 100

// end is the offset behind the window.
func (s *source) end() int { return s.base + len(s.data) }

// from is the window from an offset on.
func (s *source) from(i int) []byte { return s.data[i-s.base:] }

// slice is a part of the window.
func (s *source) slice(i, j int) []byte { return s.data[i-s.base : j-s.base] }

// more makes the window longer and tells whether it could. Slices of the window made before stay as they are.
func (s *source) more() bool {
	if s.stream == nil {
		return false
	}
	if s.reader.expired() {
		s.stream = nil // nothing more is read
		return false
	}
	if cap(s.data)-len(s.data) < readSize {
		grown := make([]byte, len(s.data), 2*len(s.data)+2*readSize)
		copy(grown, s.data)
		s.data = grown
	}
	for tries := 1; ; tries++ {
		n, err := s.stream.Read(s.data[len(s.data) : len(s.data)+readSize])
		s.data = s.data[:len(s.data)+n]
		if n == 0 && err == nil && tries == maxEmptyReads {
			err = io.ErrNoProgress
		}
		if err != nil {
			if err != io.EOF {
				s.err = err
			}
			s.stream = nil
		}
		if n > 0 || err != nil {
			return n > 0
		}
	}
}

// pass feeds the taps with what stands before an offset.
func (s *source) pass(to int) {
	for i := range s.taps {
		if t := &s.taps[i]; t.pos < to {
			t.write(s.slice(t.pos, to))
			t.pos = to
		}
	}
}

// drop forgets what stands before an offset, in place: no slice of the window may be in use. What is in memory anyway
// stays.
func (s *source) drop(to int) {
	if s.stream == nil {
		return
	}
	s.pass(to)
	n := copy(s.data, s.from(to))
	s.data, s.base = s.data[:n], to
}

// leave is drop for where slices of the window are in use: it makes a new window.
func (s *source) leave(to int) {
	if s.stream == nil {
		return
	}
	s.pass(to)
	s.data, s.base = bytes.Clone(s.from(to)), to
}

// line is the line at i with its end, and where the one after it starts. Of a line that is longer than maxLine it is the
// beginning, and next is negative: skip finds it.
func (s *source) line(i int) (line []byte, next int) {
	for seen := i; ; {
		if j := bytes.IndexByte(s.from(seen), '\n'); j >= 0 && seen+j-i < s.maxLine {
			return s.slice(i, seen+j+1), seen + j + 1
		}
		if s.end()-i > s.maxLine {
			return s.slice(i, i+s.maxLine), -1
		}
		if seen = s.end(); !s.more() {
			return s.from(i), seen
		}
	}
}

// text is the line at i without its end.
func (s *source) text(i int) []byte {
	line, _ := s.line(i)
	return bytes.TrimRight(line, "\r\n")
}

// skip finds where the line after i starts.
func (s *source) skip(i int) int {
	for forget := s.leave; ; forget = s.drop {
		if j := bytes.IndexByte(s.from(i), '\n'); j >= 0 {
			return i + j + 1
		}
		i = s.end()
		forget(i)
		if !s.more() {
			return i
		}
	}
}

// tap is something that gets the octets of a body while they pass.
type tap struct {
	pos   int // what it gets next
	write func([]byte)
}

// open adds a tap for the octets from i on.
func (s *source) open(i int, write func([]byte)) {
	s.taps = append(s.taps, tap{pos: i, write: write})
}

// shut feeds the last tap up to an offset and takes it away.
func (s *source) shut(to int) {
	last := len(s.taps) - 1
	t := s.taps[last]
	s.taps = s.taps[:last]
	if t.pos < to {
		t.write(s.slice(t.pos, to))
	}
}
