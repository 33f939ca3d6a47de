package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"
)

// nextLine waits for the next command line that the library may see. Lines that it must not see are answered here.
func (c *Conn) nextLine() error {
	for {
		if c.hangUp || c.failed != nil {
			return io.EOF // the client has been told
		}
		if c.held {
			c.held = false
		} else if err := c.readLine(); err != nil {
			return io.EOF
		}
		if c.sasl {
			if c.response(); c.hangUp {
				continue
			}
			return nil
		}
		if c.line == nil { // refused
			continue
		}
		if c.inspect() {
			return nil
		}
	}
}

// readLine reads up to the next LF into c.line, or refuses the line and leaves c.line nil.
func (c *Conn) readLine() error {
	c.line, c.text, c.verb, c.replied, c.judging = nil, "", "", false, false
	if c.commands++; c.opts.MaxCommands > 0 && c.commands > c.opts.MaxCommands {
		c.tooMany("commands")
		return nil
	}
	deadline := time.Now().Add(c.opts.CommandTimeout)
	if end := c.started.Add(c.opts.SessionTimeout); end.Before(deadline) {
		deadline = end
	}
	scanned := 0
	for {
		if i := bytes.IndexByte(c.buf[c.r+scanned:c.w], '\n'); i >= 0 {
			end := c.r + scanned + i + 1
			line := c.buf[c.r:end]
			c.r = end
			if len(line) > MaxCommandLine {
				c.refuse("500 5.5.2 Line too long")
				return nil
			}
			c.line = line
			return nil
		}
		scanned = c.w - c.r
		if scanned > MaxCommandLine {
			return c.skipLine(deadline)
		}
		if err := c.fillCommand(deadline); err != nil {
			return err
		}
	}
}

// fillCommand waits for more octets of a command line. Shutdown ends the wait.
func (c *Conn) fillCommand(deadline time.Time) error {
	c.release()
	if err := c.flush(); err != nil {
		return c.fail(err)
	}
	if !c.startIdle(deadline) {
		return c.sayGoodbye()
	}
	err := c.readMore(commandBuffers)
	stopping := c.endIdle()
	switch {
	case err == nil:
		return nil
	case stopping && errors.Is(err, errTimeout):
		return c.sayGoodbye()
	}
	return c.fail(err)
}

// skipLine reads on to the end of an overlong line, in constant memory (case D11).
func (c *Conn) skipLine(deadline time.Time) error {
	for skipped := 0; skipped < maxDiscard; {
		if i := bytes.IndexByte(c.buf[c.r:c.w], '\n'); i >= 0 {
			c.r += i + 1
			c.refuse("500 5.5.2 Line too long")
			return nil
		}
		skipped += c.w - c.r
		c.r = c.w
		if err := c.fillCommand(deadline); err != nil {
			return err
		}
	}
	c.refuse("500 5.5.2 Line too long, closing connection")
	c.hangUp = true
	return nil
}

// response takes a line within AUTH, which is no command whatever it looks like. (RFC 4954, section 4.)
func (c *Conn) response() {
	c.sasl = false
	if c.line == nil || !c.inspectForm() {
		// The client has its reply; the library must give up as well.
		c.line, c.swallow = []byte("*\r\n"), true
	}
	c.text, c.verb = "", "AUTH" // the text is a secret
}

// inspect tells whether the library may see the line.
func (c *Conn) inspect() bool {
	if !c.inspectForm() {
		return false
	}
	switch c.verb {
	case "EHLO", "HELO":
		if len(c.text) > len("EHLO ")+maxDomain {
			c.refuse("501 5.5.4 Name too long") // RFC 5321, section 4.5.3.1.2
			return false
		}
		if len(c.text) <= len("EHLO ") {
			c.refuse("501 5.5.4 Say " + c.verb + " and your name")
			return false
		}
		c.greeted, c.extended = true, c.verb == "EHLO"
	case "MAIL", "AUTH":
		if !c.greeted {
			c.refuse("503 5.5.1 Say EHLO first") // RFC 5321, section 4.1.4; RFC 3207, section 4.2
			return false
		}
	case "STARTTLS":
		return c.startTLS()
	case "BDAT":
		c.line = []byte("DATA\r\n")
		return c.inspectBDAT()
	case "GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "PROXY":
		// A browser that was led here, or a proxy that is not trusted (case D15): none of its next lines may count as
		// commands.
		c.refuse("502 5.7.0 This is not for SMTP")
		c.hangUp = true
		return false
	}
	return true
}

// inspectForm tells whether the line has the form of a command line.
func (c *Conn) inspectForm() bool {
	text := strings.TrimSuffix(strings.TrimSuffix(string(c.line), "\n"), "\r")
	switch {
	case !bytes.HasSuffix(c.line, []byte("\r\n")) && !c.opts.LenientNewline:
		c.refuse("500 5.5.2 Command lines must end with CRLF") // RFC 5321, section 2.3.8
		return false
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		c.refuse("500 5.5.2 Control character in command")
		return false
	}
	if trimmed := strings.TrimRight(text, " \t"); trimmed != text {
		text = trimmed // RFC 5321, section 4.1.1, asks servers to bear trailing white space; the library does not
		c.line = []byte(text + "\r\n")
	}
	c.text = text
	word, _, _ := strings.Cut(text, " ")
	c.verb = strings.ToUpper(word)
	return true
}

// refuse answers a line that the library does not see.
func (c *Conn) refuse(reply string) {
	c.line = nil
	c.say(reply)
	c.countError(reply[0])
}

// tooMany ends a session that goes beyond a cap.
func (c *Conn) tooMany(what string) {
	c.say("421 4.7.0 " + c.opts.Hostname + " Too many " + what + ", closing connection")
	c.hangUp = true
}

// countError counts a reply by its first digit, and ends a session that gets too many refusals.
func (c *Conn) countError(class byte) {
	if class != '5' {
		return
	}
	c.errors++
	if c.opts.MaxErrors > 0 && c.errors > c.opts.MaxErrors && !c.hangUp {
		c.tooMany("errors")
	}
}
