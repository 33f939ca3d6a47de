package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
)

// mailbox reads the messages of a mailbox file one after another, or the one message of any other file. In a mailbox
// each message follows a line of "From", sender and date, the first at the start of the file, the others behind an empty
// line (RFC 4155); lines of a message that start with "From" have a ">" in front (mboxrd), which is taken away.
type mailbox struct {
	in      *bufio.Reader
	isMbox  bool
	started bool

	rest      []byte // what is still to be given out of the message
	blank     []byte // an empty line that may be the one before the next message
	lineStart bool   // whether a line starts next
	atEnd     bool   // whether the message has ended
}

var fromLine = []byte("From ")

// separator matches the start of a separator line: a sender and a date with its time and its year, in the order of asctime, as
// in "From anna Mon Nov 30 10:00:00 2026", a zone before or behind the year or not, or in that of RFC 5322. A sentence that
// starts with "From" has hardly all of it.
var separator = regexp.MustCompile(`(?i)^From [^\r\n]{0,200}?[ \t](?:` +
	months + ` +[0-9]{1,2},? +` + clock + `(?: +[a-z0-9+:-]{1,8}){0,2}? +` + year + `|[0-9]{1,2}[ -]` + months + `[ -]` + year + `,? +` + clock + `)`)

// maxSeparator is how many octets of a line are looked at for that.
const maxSeparator = 256

const (
	months = `(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)`
	clock  = `[0-2]?[0-9]:[0-5][0-9](?::[0-6][0-9])?`
	year   = `(?:19|20)[0-9]{2}`
)

// newMailbox looks at the start of a file.
func newMailbox(in io.Reader) *mailbox {
	m := &mailbox{in: bufio.NewReaderSize(in, 64<<10), lineStart: true}
	start, _ := m.in.Peek(maxSeparator) // an error comes again when it is read
	m.isMbox = separator.Match(start)
	return m
}

// next is the next message; io.EOF says that there is none. A message must be read before the next is asked for; what
// is left of it is passed over.
func (m *mailbox) next() (io.Reader, error) {
	if !m.isMbox {
		if m.started {
			return nil, io.EOF
		}
		m.started = true
		return m.in, nil
	}
	if m.started {
		if _, err := io.Copy(io.Discard, messageReader{m}); err != nil {
			return nil, err
		}
	}
	m.started, m.atEnd = true, false
	// The separator line; what is behind it is the message.
	for m.lineStart = false; !m.lineStart; {
		line, err := m.line()
		if err != nil {
			return nil, err
		}
		if line == nil {
			return nil, io.EOF
		}
	}
	return messageReader{m}, nil
}

// line reads a line or, of a very long one, the next piece. It is nil at the end of the file.
func (m *mailbox) line() ([]byte, error) {
	line, err := m.in.ReadSlice('\n')
	switch {
	case err == nil:
		m.lineStart = true
	case errors.Is(err, bufio.ErrBufferFull):
		m.lineStart = false
	case errors.Is(err, io.EOF):
		m.lineStart = true
		if len(line) == 0 {
			return nil, nil
		}
	default:
		return nil, err
	}
	return line, nil
}

// messageReader reads the message of a mailbox that is under way.
type messageReader struct{ m *mailbox }

// Read reads up to the next separator line.
func (r messageReader) Read(p []byte) (int, error) {
	for len(r.m.rest) == 0 {
		if r.m.atEnd {
			return 0, io.EOF
		}
		if err := r.m.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.m.rest)
	r.m.rest = r.m.rest[n:]
	return n, nil
}

// fill makes the next line ready.
func (m *mailbox) fill() error {
	start := m.lineStart
	if start && m.blank != nil {
		if next, _ := m.in.Peek(maxSeparator); separator.Match(next) {
			m.blank, m.atEnd = nil, true
			return nil
		}
	}
	line, err := m.line()
	if err != nil {
		return err
	}
	if line == nil {
		m.atEnd, m.blank = true, nil // the empty line at the end of a mailbox
		return nil
	}
	if quoted := bytes.TrimLeft(line, ">"); start && len(quoted) < len(line) && bytes.HasPrefix(quoted, fromLine) {
		line = line[1:]
	}
	blank := m.blank
	m.blank = nil
	if start && m.lineStart && len(bytes.TrimRight(line, "\r\n")) == 0 {
		m.blank, line = bytes.Clone(line), nil
	}
	m.rest = append(blank, line...)
	return nil
}
