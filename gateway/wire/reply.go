package wire

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Write takes a reply line from the library. It is written when the connection waits for the client, or when it
// closes.
func (c *Conn) Write(p []byte) (int, error) {
	size := len(p)
	if c.failed != nil {
		return size, nil // the client has been told, or is gone
	}
	if rest, ok := bytes.CutPrefix(p, []byte("500 5.5.1 Too many errors")); ok {
		p = append([]byte("421 4.7.0 "+c.opts.Hostname+" Too many errors"), rest...) // the connection closes: section 3.8
		c.hangUp = true
	}
	switch {
	case c.verb == "EHLO" && bytes.HasPrefix(p, []byte("250-DSN")) && !c.owner.Notifies():
		return size, nil // the library announces it to everybody
	case c.swallow:
		c.swallow = size > 3 && p[3] == '-'
		return size, nil
	case !c.replied && c.verb == "BDAT" && bytes.HasPrefix(p, []byte("354")):
		c.replied, c.body = true, &chunkBody{c: c}
		return size, nil
	case c.verb == "AUTH" && bytes.HasPrefix(p, []byte("334")):
		c.sasl = true
	case !c.replied && c.verb == "DATA" && bytes.HasPrefix(p, []byte("354")):
		c.body = &dataBody{c: c}
	}
	line := c.mend(p)
	c.out = append(c.out, line...)
	c.replied = true
	if size > 3 && p[3] != '-' {
		c.countRefusal(line)
		c.replyEnds(p[0])
	}
	if len(c.out) >= bufferSize {
		if err := c.flush(); err != nil {
			return 0, c.fail(err)
		}
	}
	return size, nil
}

// say writes a reply of our own, without CRLF.
func (c *Conn) say(reply string) {
	c.out = append(append(c.out, reply...), "\r\n"...)
	c.countRefusal([]byte(reply))
	c.replies++
}

// replyEnds is called at the end of the library's reply of a class.
func (c *Conn) replyEnds(class byte) {
	c.replies++
	if class == '2' && c.judging { // a message was accepted
		c.commands, c.errors = 0, 0
	}
	c.countError(class)
}

// mend puts right what the library says against RFC 5321. Only the first line of a reply can need it.
func (c *Conn) mend(line []byte) []byte {
	if c.replied {
		return line
	}
	host := c.opts.Hostname
	swap := func(old, with string) bool {
		rest, ok := bytes.CutPrefix(line, []byte(old))
		if ok {
			line = append([]byte(with), rest...)
		}
		return ok
	}
	switch c.verb {
	case "EHLO", "HELO":
		// The first word is our name, not the client's. (Section 4.1.1.1.)
		if swap("250-Hello ", "250-"+host+" Hello ") {
			line = append(line, c.extensions()...)
		} else {
			swap("250 2.0.0 Hello ", "250 "+host+" Hello ")
		}
		line = ascii(line)
	case "MAIL", "RCPT", "DATA", "BDAT":
		if line[0] != '5' {
			break // the usual reply: nothing below is for it
		}
		if hugeSize(c.text) && swap("501 5.5.4 Unable to parse SIZE as an integer", "552 5.3.4 Message too big") {
			break
		}
		// 503 is for a bad sequence, 501 for a bad value, 555 for unknown parameters. (Sections 4.1.4 and 4.1.1.11.)
		_ = swap("502 5.5.1", "503 5.5.1") || swap("500 5.5.4 Malformed", "501 5.5.4 Malformed") || swap("500 5.5.4", "555 5.5.4") || swap("504 5.5.4", "555 5.5.4") || c.mendAddress(swap)
	case "AUTH": // RFC 4954, sections 4 and 6
		_ = swap("454 4.7.0 Invalid base64 data", "501 5.5.2 Response is not base64") ||
			swap("502 5.5.4", "501 5.5.4") || swap("501 5.0.0", "501 5.7.0") || swap("235 2.0.0", "235 2.7.0")
	case "QUIT":
		swap("221 2.0.0 Bye", "221 2.0.0 "+host+" Bye") // section 4.2.3
	default:
		_ = swap("501 5.5.2 Bad command", "500 5.5.2 Command not recognized") // section 4.2.4
		line = ascii(line)
	}
	return line
}

// ascii replaces in a reply what a client said that is not ASCII. (RFC 5321, section 4.2; RFC 6531, section 3.7.1.)
func ascii(line []byte) []byte {
	odd := func(r rune) bool { return r >= utf8.RuneSelf }
	if !bytes.ContainsFunc(line, odd) {
		return line
	}
	return bytes.Map(func(r rune) rune {
		if odd(r) {
			return '?'
		}
		return r
	}, line)
}

// extensions are the lines of EHLO's reply that the library does not know of.
func (c *Conn) extensions() (lines string) {
	if c.opts.TLS != nil && c.nc == c.raw {
		lines = "250-STARTTLS\r\n" // RFC 3207, section 4
	}
	if c.opts.MaxRecipients > 0 {
		lines += fmt.Sprintf("250-LIMITS RCPTMAX=%d\r\n", c.opts.MaxRecipients) // RFC 9422, section 4
	}
	return lines
}

// hugeSize tells whether a MAIL command has a SIZE that is a number, which the library can't read from 2^32 on. (RFC 1870,
// section 4: up to 20 digits.)
func hugeSize(text string) bool {
	for _, parameter := range strings.Fields(text) {
		keyword, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(keyword, "SIZE") {
			return len(value) >= 10 && len(value) <= 20 && strings.Trim(value, "0123456789") == ""
		}
	}
	return false
}

// mendAddress says that an address is bad where the library only says that the command is. (RFC 3463, sections 3.2 and
// 3.6.)
func (c *Conn) mendAddress(swap func(old, with string) bool) bool {
	text := strings.ToUpper(c.text)
	return strings.HasPrefix(text, "MAIL FROM:") &&
		swap("501 5.5.2 Was expecting MAIL arg syntax of FROM:<address>", "501 5.1.7 Malformed sender address") ||
		strings.HasPrefix(text, "RCPT TO:") &&
			swap("501 5.5.2 Was expecting RCPT arg syntax of TO:<address>", "501 5.1.3 Malformed recipient address")
}

// maxDelay bounds the delay of a group of replies.
const maxDelay = time.Minute

// delay waits as long as the pending replies are to be late: a tarpit, or the patience that a benchmark asks for.
func (c *Conn) delay() {
	wait := min(c.opts.ReplyDelay*time.Duration(c.replies), maxDelay)
	c.replies = 0
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.opts.Stopping:
	}
}

// maxKeptOut is how large a buffer for replies may be that is kept for the next: larger than that of EHLO's reply.
const maxKeptOut = 512

// flush writes pending replies.
func (c *Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.delay()
	if err := c.raw.SetWriteDeadline(time.Now().Add(c.opts.WriteTimeout)); err != nil {
		return err
	}
	_, err := c.nc.Write(c.out)
	if cap(c.out) > maxKeptOut {
		c.out = nil
	}
	c.out = c.out[:0]
	return err
}
