package sink

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// idle is how long a session may say nothing.
const idle = 10 * time.Minute

// errEnded ends a session as its script or its client wants.
var errEnded = errors.New("the session has ended")

// session is one connection with a client.
type session struct {
	sink     *Sink
	conn     net.Conn
	raw      net.Conn // conn without TLS
	r        *bufio.Reader
	w        *bufio.Writer
	protocol string
	secure   bool

	mailing    bool // after MAIL
	sender     string
	recipients []string
	content    *bytes.Buffer // of BDAT chunks so far; nil outside
}

var contents = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (s *Sink) session(conn net.Conn, protocol string) {
	s.book.connected()
	c := &session{sink: s, raw: conn, protocol: protocol}
	c.use(conn)
	if s.cfg.ImplicitTLS && c.handshake(s.script.Load().find(StartTLS, c.situation())) != nil {
		return
	}
	if c.say(Connect, "220 "+s.cfg.Hostname+" ESMTP rohrload") != nil {
		return
	}
	for {
		if err := c.flush(); err != nil {
			return
		}
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return
		}
		if c.command(strings.TrimRight(string(line), "\r\n")) != nil {
			_ = c.w.Flush()
			return
		}
	}
}

// use goes on over a connection: the first, or one with TLS.
func (c *session) use(conn net.Conn) {
	c.conn, c.r, c.w = conn, bufio.NewReaderSize(conn, 8<<10), bufio.NewWriterSize(conn, 1<<10)
}

// flush writes the replies where nothing more is at hand to answer at once, as for a client that pipelines.
func (c *session) flush() error {
	if c.r.Buffered() > 0 {
		return nil
	}
	_ = c.raw.SetDeadline(time.Now().Add(idle))
	return c.w.Flush()
}

func (c *session) command(line string) error {
	verb, arg, _ := strings.Cut(line, " ")
	switch strings.ToUpper(verb) {
	case "EHLO", "LHLO":
		return c.say(Hello, c.greeting())
	case "HELO":
		return c.say(Hello, "250 "+c.sink.cfg.Hostname)
	case "STARTTLS":
		return c.startTLS()
	case "AUTH":
		return c.auth(arg)
	case "MAIL":
		return c.mail(addressIn(arg))
	case "RCPT":
		return c.rcpt(addressIn(arg))
	case "DATA":
		return c.data()
	case "BDAT":
		return c.bdat(arg)
	case "RSET":
		c.reset()
		return c.write("250 2.0.0 Ok")
	case "NOOP":
		return c.write("250 2.0.0 Ok")
	case "QUIT":
		if err := c.say(Quit, "221 2.0.0 Bye"); err != nil {
			return err
		}
		return errEnded
	}
	return c.write("500 5.5.2 Command unknown")
}

// greeting lists what it can. A reply to HELO has none of it.
func (c *session) greeting() string {
	lines := []string{
		"250 " + c.sink.cfg.Hostname, "PIPELINING", "SIZE " + strconv.Itoa(MaxContent), "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES",
		"DSN", "CHUNKING", "AUTH PLAIN LOGIN",
	}
	if c.sink.cfg.StartTLS && !c.secure {
		lines = append(lines, "STARTTLS")
	}
	return strings.Join(lines, "\n")
}

// addressIn is the address in MAIL FROM:<…> or RCPT TO:<…>. (RFC 5321, section 4.1.2.)
func addressIn(arg string) string {
	_, rest, found := strings.Cut(arg, "<")
	address, _, closed := strings.Cut(rest, ">")
	if !found || !closed {
		return ""
	}
	return strings.ToLower(address)
}

func (c *session) reset() {
	c.mailing, c.sender, c.recipients = false, "", nil
	if c.content != nil {
		c.content.Reset()
		contents.Put(c.content)
		c.content = nil
	}
}

func (c *session) mail(sender string) error {
	c.reset()
	now := c.situation()
	now.sender = sender
	rule := c.sink.script.Load().find(Mail, now)
	if rule.passes() {
		c.mailing, c.sender = true, sender
	}
	return c.act(rule, "250 2.1.0 Ok")
}

func (c *session) rcpt(address string) error {
	if !c.mailing {
		return c.write("503 5.5.1 MAIL first")
	}
	now := c.situation()
	now.recipients = []string{address}
	reply := "250 2.1.5 Ok"
	rule := c.sink.script.Load().find(Rcpt, now)
	if rule.passes() {
		c.recipients = append(c.recipients, address)
	}
	return c.act(rule, reply)
}

func (c *session) situation() situation {
	return situation{protocol: c.protocol, sender: c.sender, recipients: c.recipients}
}

func (c *session) startTLS() error {
	if !c.sink.cfg.StartTLS || c.secure {
		return c.write("502 5.5.1 Not now")
	}
	rule := c.sink.script.Load().find(StartTLS, c.situation())
	if rule != nil && rule.Reply != "" && code(rule.Reply) != 220 {
		return c.act(rule, "")
	}
	if rule != nil && rule.Delay > 0 && !c.sleep(time.Duration(rule.Delay)) {
		return errEnded
	}
	if err := c.write("220 2.0.0 Go ahead"); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	if rule != nil {
		rule = &Rule{Then: rule.Then} // it has waited
	}
	return c.handshake(rule)
}

// handshake begins TLS, or does what a rule says in its place.
func (c *session) handshake(rule *Rule) error {
	cfg := c.sink.tls
	if rule != nil {
		if rule.Delay > 0 && !c.sleep(time.Duration(rule.Delay)) {
			return errEnded
		}
		other := c.sink.otherTLS[rule.Then]
		if rule.Then != Continue && other == nil {
			_, _ = c.r.Peek(1) // it is the answer to the client's hello
			return c.then(rule.Then)
		}
		if other != nil {
			cfg = other
		}
	}
	c.reset()
	c.secure = true
	c.use(tls.Server(c.raw, cfg)) // the first read makes the handshake
	return nil
}

// auth takes any credentials. (RFC 4954, section 4.)
func (c *session) auth(arg string) error {
	mechanism, initial, _ := strings.Cut(arg, " ")
	prompts := 0
	switch {
	case strings.EqualFold(mechanism, "LOGIN") && initial == "":
		prompts = 2
	case strings.EqualFold(mechanism, "LOGIN"), strings.EqualFold(mechanism, "PLAIN") && initial == "":
		prompts = 1
	case strings.EqualFold(mechanism, "PLAIN"):
	default:
		return c.write("504 5.5.4 Mechanism unknown")
	}
	for range prompts {
		if err := c.write("334 "); err != nil {
			return err
		}
		if err := c.w.Flush(); err != nil {
			return err
		}
		if _, err := c.r.ReadSlice('\n'); err != nil {
			return err
		}
	}
	return c.say(Auth, "235 2.7.0 Welcome")
}

// say writes a reply, unless the script has another idea.
func (c *session) say(at Phase, reply string) error {
	return c.act(c.sink.script.Load().find(at, c.situation()), reply)
}

// act does what a rule says in place of the usual reply; a nil rule says nothing.
func (c *session) act(rule *Rule, reply string) error {
	if rule == nil {
		return c.write(reply)
	}
	if rule.Delay > 0 && !c.sleep(time.Duration(rule.Delay)) {
		return errEnded
	}
	if rule.Reply != "" || rule.Then != Continue {
		reply = rule.Reply
	}
	if reply != "" {
		out := wire(reply)
		if rule.Then != Continue && rule.Octets > 0 {
			out = out[:min(rule.Octets, len(out))]
		}
		if _, err := c.w.Write(out); err != nil {
			return err
		}
	}
	return c.then(rule.Then)
}

func (c *session) write(reply string) error {
	_, err := c.w.Write(wire(reply))
	return err
}

// sleep waits, having written what was said before. It is false when the sink closes meanwhile.
func (c *session) sleep(d time.Duration) bool {
	if c.w.Flush() != nil {
		return false
	}
	select {
	case <-c.sink.done:
		return false
	case <-time.After(d):
		_ = c.raw.SetDeadline(time.Now().Add(idle))
		return true
	}
}

// then does to the connection what a rule says.
func (c *session) then(then Then) error {
	if then == Continue {
		return nil
	}
	_ = c.w.Flush()
	switch then {
	case Reset:
		if tcp, ok := c.raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // Close sends RST
		}
	case Close:
		if tcp, ok := c.raw.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // FIN goes out even where octets are unread, for which Close would send RST
			_ = tcp.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, tcp)
		}
	case Silence:
		c.silence()
	case Garbage:
		_, _ = c.raw.Write(bytes.Repeat([]byte{0, 0xff, '\r', 'X'}, 64))
	}
	return errEnded
}

// silence reads on and answers nothing until the other side or the sink ends it.
func (c *session) silence() {
	_ = c.raw.SetDeadline(time.Time{})
	buf := make([]byte, 4096)
	for {
		if _, err := c.raw.Read(buf); err != nil {
			return
		}
	}
}
