package sink

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// data takes content after DATA. (RFC 5321, section 4.1.1.4.)
func (c *session) data() error {
	if len(c.recipients) == 0 {
		return c.write("554 5.5.1 No valid recipients")
	}
	rule := c.sink.script.Load().find(Data, c.situation())
	if err := c.act(rule, "354 Go ahead"); err != nil {
		return err
	}
	if rule != nil && rule.Reply != "" && code(rule.Reply) != 354 {
		return nil
	}
	if err := c.flush(); err != nil {
		return err
	}
	buf := contents.Get().(*bytes.Buffer)
	defer func() {
		buf.Reset()
		contents.Put(buf)
	}()
	fault, err := c.readLines(buf, c.sink.script.Load().find(Content, c.situation()))
	if err != nil {
		return err
	}
	return c.arrived(buf.Bytes(), fault)
}

// readLines reads to the end mark, takes off doubled dots and tells what was wrong with the line ends.
func (c *session) readLines(buf *bytes.Buffer, rule *Rule) (fault string, err error) {
	begun, afterCR := true, false // a line begins; the octet before was a CR
	for {
		if rule != nil && buf.Len() >= rule.Octets {
			if err := c.interrupt(rule); err != nil {
				return "", err
			}
			rule = nil
		}
		line, err := c.piece(begun, rule, buf.Len())
		if err != nil {
			return "", err
		}
		if f := stray(line, afterCR); f != "" {
			fault = f
		}
		afterCR = line[len(line)-1] == '\r'
		if begun && line[0] == '.' {
			if string(line) == ".\r\n" {
				return fault, nil
			}
			line = line[1:]
		}
		begun = bytes.HasSuffix(line, []byte("\n"))
		take(buf, line)
		if c.r.Buffered() == 0 { // else the next line costs no wait
			_ = c.raw.SetReadDeadline(time.Now().Add(idle))
		}
	}
}

// stray finds a CR or LF that stands alone, in octets that have an LF at their end at most. (RFC 5321, section 2.3.8.)
func stray(octets []byte, afterCR bool) string {
	last := len(octets) - 1
	if octets[last] == '\n' && (last > 0 && octets[last-1] != '\r' || last == 0 && !afterCR) {
		return "a bare LF"
	}
	if i := bytes.IndexByte(octets, '\r'); i >= 0 && i < last && octets[i+1] != '\n' || afterCR && octets[0] != '\n' {
		return "a bare CR"
	}
	return ""
}

// piece reads a line, or as much of it as there is room for. Before a rule acts it reads no octet more than the rule lets pass:
// one that would wait for the rest of a line might never act.
func (c *session) piece(begun bool, rule *Rule, have int) ([]byte, error) {
	if rule == nil {
		line, err := c.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		return line, err
	}
	most := min(rule.Octets-have, c.r.Size()-2)
	for n := 1; ; n++ {
		piece, err := c.r.Peek(n)
		if err != nil {
			return nil, err
		}
		if begun && n < 3 && string(piece) == ".\r"[:n] {
			continue // only the third octet tells the end mark
		}
		if piece[n-1] == '\n' || n >= most {
			_, err := c.r.Discard(n)
			return piece, err
		}
	}
}

// take adds octets to the content, of which what is too large need not be kept.
func take(buf *bytes.Buffer, octets []byte) {
	if buf.Len() < MaxContent {
		_, _ = buf.Write(octets)
	}
}

// interrupt does what a rule says in the middle of the content.
func (c *session) interrupt(rule *Rule) error {
	if rule.Delay > 0 && !c.sleep(time.Duration(rule.Delay)) {
		return errEnded
	}
	return c.then(rule.Then)
}

// bdat takes a chunk. (RFC 3030, section 2.)
func (c *session) bdat(arg string) error {
	count, last, _ := strings.Cut(arg, " ")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 0 || n > MaxContent {
		_ = c.write("501 5.5.4 BDAT needs a length")
		return errEnded // where the next command starts is not known
	}
	if len(c.recipients) == 0 {
		if _, err := io.CopyN(io.Discard, c.r, n); err != nil {
			return err
		}
		return c.write("554 5.5.1 No valid recipients")
	}
	if c.content == nil {
		c.content = contents.Get().(*bytes.Buffer)
	}
	rule := c.sink.script.Load().find(Content, c.situation())
	for {
		most := min(n, int64(c.r.Size()))
		if rule != nil && c.content.Len() >= rule.Octets {
			if err := c.interrupt(rule); err != nil {
				return err
			}
			rule = nil
		} else if rule != nil {
			most = min(most, int64(rule.Octets-c.content.Len()))
		}
		if n == 0 {
			break
		}
		piece, err := c.r.Peek(int(most))
		if err != nil && len(piece) == 0 {
			return err
		}
		take(c.content, piece)
		if _, err := c.r.Discard(len(piece)); err != nil {
			return err
		}
		n -= int64(len(piece))
	}
	if !strings.EqualFold(last, "LAST") {
		return c.write("250 2.0.0 Ok")
	}
	return c.arrived(c.content.Bytes(), "")
}

// arrived enters a whole content into the book and answers: once, or by LMTP for each recipient. (RFC 2033, section 4.2.)
func (c *session) arrived(content []byte, fault string) error {
	defer c.reset()
	if len(content) >= MaxContent {
		return c.write("552 5.3.4 Too large")
	}
	a := c.sink.book.examine(c.protocol, c.sender, content, fault)
	now := c.situation()
	now.id = a.id
	if c.protocol != "lmtp" {
		rule := c.sink.script.Load().find(Dot, now)
		reply, sent := outcome(rule)
		for _, recipient := range c.recipients {
			c.sink.book.enter(a, recipient, reply, sent)
		}
		return c.act(rule, accepted)
	}
	for _, recipient := range c.recipients {
		now.recipients = []string{recipient}
		rule := c.sink.script.Load().find(Dot, now)
		reply, sent := outcome(rule)
		c.sink.book.enter(a, recipient, reply, sent)
		if err := c.act(rule, accepted); err != nil {
			return err
		}
	}
	return nil
}

const accepted = "250 2.0.0 Ok"

// outcome is the code that a rule answers with and whether all of it goes out. Where a rule only breaks the connection, the
// sink has taken the message all the same.
func outcome(rule *Rule) (reply int, sent bool) {
	switch {
	case rule == nil || rule.Reply == "" && rule.Then == Continue:
		return 250, true
	case rule.Reply == "":
		return 250, false
	case rule.Then != Continue && rule.Octets > 0 && rule.Octets < len(wire(rule.Reply)):
		return code(rule.Reply), false
	}
	return code(rule.Reply), true
}
