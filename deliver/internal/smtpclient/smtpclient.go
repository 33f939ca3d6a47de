// Package smtpclient speaks the client's side of SMTP, one step at a time, so that its caller decides about each step.
//
// It exists beside go-smtp's client because deliver must ask its permit between the last octet of the content and the
// final dot, must have a deadline on every read and write, must refuse a bare CR or LF instead of mending it, and must
// keep a last reply though the connection broke under it.
package smtpclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Limits on what a peer may send in one reply, in octets.
const (
	maxLine  = 4 << 10
	maxReply = 64 << 10
	maxText  = 2000
)

// lastWords is how long to wait for a reply that may have come before a write failed.
const lastWords = 2 * time.Second

// ErrReply means that the peer sent what is no reply of SMTP.
var ErrReply = errors.New("the peer's reply is malformed")

// Conn is a connection to a server. It is not safe for concurrent use, except for Close.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	out  *bufio.Writer // for contents; made with the first
}

// New takes over a connection. Nothing has been read from it.
func New(conn net.Conn) *Conn {
	return &Conn{conn: conn, r: bufio.NewReaderSize(conn, maxLine)}
}

// Close drops the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// RemoteAddr tells whom the connection leads to.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Unread tells whether the peer has sent something that nobody has read.
func (c *Conn) Unread() bool { return c.r.Buffered() > 0 }

// Reply is a reply as the peer sent it.
type Reply struct {
	Code  int
	lines []string // without codes
}

// Lines returns the texts of the reply's lines, without the code.
func (r *Reply) Lines() []string { return r.lines }

// Cmd sends one line, without its CRLF, and reads the reply. The time-out is for each of the two. Where writing fails,
// a refusal that the peer had sent before is returned all the same (case C7).
func (c *Conn) Cmd(timeout time.Duration, line string) (*Reply, error) {
	if strings.ContainsAny(line, "\r\n\x00") {
		return nil, errors.New("smtpclient: a command must be one line")
	}
	if err := c.write(timeout, []byte(line+"\r\n")); err != nil {
		if reply := c.LastWords(); reply != nil {
			return reply, nil
		}
		return nil, err
	}
	return c.Read(timeout)
}

// LastWords returns the refusal that the peer sent before the connection broke, or nil.
func (c *Conn) LastWords() *Reply {
	reply, err := c.Read(lastWords)
	if err != nil || reply.Code < 400 {
		return nil
	}
	return reply
}

func (c *Conn) write(timeout time.Duration, b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// Read reads one reply. The time-out is for all of it, so that a peer that sends an octet now and then can't hold us.
// (RFC 5321, section 4.2.1.)
func (c *Conn) Read(timeout time.Duration) (*Reply, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("setting a deadline: %w", err)
	}
	reply := &Reply{}
	for left := maxReply; left > 0; {
		line, n, err := c.line(left)
		left -= n
		if err != nil && (line == "" || reply.Code != 0) {
			return nil, fmt.Errorf("reading a reply: %w", err)
		}
		code, text, more, ok := parse(line)
		if !ok || (reply.Code != 0 && code != reply.Code) {
			return nil, fmt.Errorf("%w: %q", ErrReply, cut(line, 80))
		}
		// A refusal whose line end is missing because the peer closed is still a refusal; nothing else is believed.
		if err != nil && (code < 400 || more) {
			return nil, fmt.Errorf("reading a reply: %w", err)
		}
		reply.Code = code
		reply.lines = append(reply.lines, text)
		if !more {
			return reply, nil
		}
	}
	return nil, fmt.Errorf("%w: longer than %d octets", ErrReply, maxReply)
}

// line reads to the next LF and returns the first maxLine octets without the line end, and how many octets it took.
func (c *Conn) line(limit int) (string, int, error) {
	var kept string
	for n := 0; ; {
		piece, err := c.r.ReadSlice('\n')
		if n == 0 {
			kept = strings.TrimRight(string(piece), "\r\n")
		}
		n += len(piece)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && n < limit:
		case errors.Is(err, bufio.ErrBufferFull):
			return "", n, fmt.Errorf("%w: longer than %d octets", ErrReply, maxReply)
		case errors.Is(err, io.EOF):
			return kept, n, io.ErrUnexpectedEOF
		default:
			return kept, n, err
		}
	}
}

func parse(line string) (code int, text string, more, ok bool) {
	if len(line) < 3 || line[0] < '2' || line[0] > '5' || !digit(line[1]) || !digit(line[2]) {
		return 0, "", false, false
	}
	code = int(line[0]-'0')*100 + int(line[1]-'0')*10 + int(line[2]-'0')
	switch {
	case len(line) == 3:
		return code, "", false, true
	case line[3] == ' ' || line[3] == '-':
		return code, line[4:], line[3] == '-', true
	default:
		return 0, "", false, false
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

var enhanced = regexp.MustCompile(`^([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)`)

// Mail turns the reply into one that is safe to show: the enhanced code apart, the text printable and of at most 2 000
// octets.
func (r *Reply) Mail() *mailv1.Reply {
	out := &mailv1.Reply{Code: int32(r.Code)}
	lines := make([]string, 0, len(r.lines))
	for _, line := range r.lines {
		if m := enhanced.FindStringSubmatch(line); m != nil && int(m[1][0]-'0') == r.Code/100 {
			out.EnhancedCode = m[1]
			line = strings.TrimPrefix(line[len(m[1]):], " ")
		}
		lines = append(lines, printable(line))
	}
	out.Text = cut(strings.Join(lines, "\n"), maxText)
	return out
}

// printable replaces what a terminal, a log or a header field should not see.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		default:
			return r
		}
	}, s))
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
