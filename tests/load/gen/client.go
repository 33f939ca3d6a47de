package gen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// client is the client's end of one SMTP or LMTP connection. It is lean, since thousands run at once: a small buffer for
// replies, none for what is written.
type client struct {
	cfg     *Config
	raw     net.Conn
	conn    net.Conn // raw, or TLS over it
	r       *bufio.Reader
	ext     map[string]string // what EHLO announced, by name in upper case
	greeted func()            // is called when the server has greeted, once
}

// replyBuffer holds a reply line, of 512 octets at most. (RFC 5321, section 4.5.3.1.5.)
const replyBuffer = 1024

// replyError is a reply that is not the one that must come.
type replyError struct {
	phase string
	code  int
	text  string
}

func (e *replyError) Error() string { return fmt.Sprintf("%s: %s", e.phase, e.text) }

// phaseError is any other error, with the phase in which it happened.
type phaseError struct {
	phase string
	err   error
}

func (e *phaseError) Error() string { return e.phase + ": " + e.err.Error() }
func (e *phaseError) Unwrap() error { return e.err }

// connect opens a session up to where messages may be sent.
func (c *client) connect(ctx context.Context, d *dialer) error {
	conn, err := d.dial(ctx)
	if err != nil {
		return &phaseError{"dial", err}
	}
	c.raw = conn
	if c.cfg.TLS == Implicit {
		if conn, err = d.secure(ctx, conn); err != nil {
			return &phaseError{"tls", err}
		}
	}
	c.use(conn)
	if _, err := c.expect("greeting", 220, c.cfg.Timeout); err != nil {
		return err
	}
	c.greeted()
	if err := c.hello(); err != nil {
		return err
	}
	if c.cfg.TLS == StartTLS {
		if _, err := c.cmd("starttls", 220, "STARTTLS\r\n"); err != nil {
			return err
		}
		if conn, err = d.secure(ctx, c.raw); err != nil {
			return &phaseError{"tls", err}
		}
		c.use(conn)
		if err := c.hello(); err != nil {
			return err
		}
	}
	return c.auth()
}

func (c *client) use(conn net.Conn) {
	c.conn = conn
	if c.r == nil {
		c.r = bufio.NewReaderSize(conn, replyBuffer)
	} else {
		c.r.Reset(conn)
	}
}

func (c *client) hello() error {
	verb := "EHLO"
	if c.cfg.LMTP {
		verb = "LHLO"
	}
	text, err := c.cmd("hello", 250, verb+" rohrload.test\r\n")
	if err != nil {
		return err
	}
	c.ext = map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > 4 {
			name, params, _ := strings.Cut(line[4:], " ")
			c.ext[strings.ToUpper(name)] = params
		}
	}
	for name, wanted := range map[string]bool{"PIPELINING": c.cfg.Pipelining, "CHUNKING": c.cfg.Chunk > 0} {
		if _, ok := c.ext[name]; wanted && !ok {
			return &phaseError{"hello", fmt.Errorf("the server does not offer %s", name)}
		}
	}
	return nil
}

// auth proves who we are. (RFC 4616.)
func (c *client) auth() error {
	if c.cfg.Username == "" {
		return nil
	}
	plain := base64.StdEncoding.EncodeToString([]byte("\x00" + c.cfg.Username + "\x00" + c.cfg.Password))
	_, err := c.cmd("auth", 235, "AUTH PLAIN "+plain+"\r\n")
	return err
}

// cmd sends a command and reads its reply.
func (c *client) cmd(phase string, code int, line string) (string, error) {
	if err := c.write(phase, []byte(line)); err != nil {
		return "", err
	}
	return c.expect(phase, code, c.cfg.Timeout)
}

// write writes octets, having made sure that nothing came that no command asked for.
func (c *client) write(phase string, pieces ...[]byte) error {
	if n := c.r.Buffered(); n > 0 {
		rest, _ := c.r.Peek(n)
		return &phaseError{phase, fmt.Errorf("a reply to no command: %q", rest)}
	}
	_ = c.raw.SetDeadline(time.Now().Add(c.cfg.Timeout))
	var err error
	if _, tcp := c.conn.(*net.TCPConn); tcp {
		bufs := net.Buffers(pieces)
		_, err = bufs.WriteTo(c.conn)
	} else {
		err = writeRecords(c.conn, pieces)
	}
	if err != nil {
		return &phaseError{phase, err}
	}
	return nil
}

// record is what a TLS record holds at most. (RFC 8446, section 5.1.)
const record = 16 << 10

var records = sync.Pool{New: func() any { return new([record]byte) }}

// writeRecords joins pieces to as few TLS records as they need: each write is one of its own, and a system call, where a plain
// connection takes many pieces in one.
func writeRecords(w io.Writer, pieces [][]byte) error {
	buf := records.Get().(*[record]byte)
	defer records.Put(buf)
	held := 0
	for _, piece := range pieces {
		for len(piece) > 0 {
			octets := piece[:min(len(piece), record-held)]
			piece = piece[len(octets):]
			if held > 0 || len(octets) < record { // else nothing has to be copied
				held += copy(buf[held:], octets)
				if octets = buf[:held]; held < record {
					continue
				}
			}
			held = 0
			if _, err := w.Write(octets); err != nil {
				return err
			}
		}
	}
	if held == 0 {
		return nil
	}
	_, err := w.Write(buf[:held])
	return err
}

// expect reads a reply, which must have a code.
func (c *client) expect(phase string, code int, timeout time.Duration) (string, error) {
	_ = c.raw.SetDeadline(time.Now().Add(timeout))
	got, text, err := c.reply()
	switch {
	case err != nil:
		return "", &phaseError{phase, err}
	case got != code:
		return text, &replyError{phase: phase, code: got, text: text}
	}
	return text, nil
}

var errSyntax = errors.New("not a reply")

// reply reads a reply: its code and its lines, parted by LF. (RFC 5321, section 4.2.)
func (c *client) reply() (int, string, error) {
	var text []byte
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		trimmed := bytes.TrimSuffix(line, []byte("\r\n"))
		if len(trimmed) == len(line) || len(trimmed) < 3 {
			return 0, "", fmt.Errorf("%w: %q", errSyntax, line)
		}
		code, err := strconv.Atoi(string(trimmed[:3]))
		if err != nil || code < 200 || code > 599 || len(trimmed) > 3 && trimmed[3] != ' ' && trimmed[3] != '-' {
			return 0, "", fmt.Errorf("%w: %q", errSyntax, line)
		}
		if len(text) > 0 {
			if !bytes.Equal(text[:3], trimmed[:3]) {
				return 0, "", fmt.Errorf("%w: %q after %q", errSyntax, line, text)
			}
			text = append(text, '\n')
		}
		text = append(text, trimmed...)
		if len(trimmed) == 3 || trimmed[3] == ' ' {
			return code, string(text), nil
		}
	}
}

// quit ends a session in order.
func (c *client) quit() error {
	_, err := c.cmd("quit", 221, "QUIT\r\n")
	return err
}
