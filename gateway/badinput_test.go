package gateway_test

import (
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// endless gives out a text again and again, so many octets of it.
func endless(text string, octets int) io.Reader {
	return io.LimitReader(&repeated{text: text}, int64(octets))
}

type repeated struct {
	text string
	pos  int
}

func (r *repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.pos]
		r.pos = (r.pos + 1) % len(r.text)
	}
	return len(p), nil
}

// hadRefusals matches the line that a session leaves in the log in which something was refused.
var hadRefusals = regexp.MustCompile(`msg="session had refusals" session=[0-9a-f]{16} client=127\.0\.0\.1 refusals="?\[.*\]`)

// Whatever a client sends, it gets the reply that the RFCs give, nothing is stored, one line in the log tells the session, and
// memory does not grow with it.
func TestBadInput(t *testing.T) {
	const ehlo = "EHLO c.test\r\n"
	const mail = ehlo + "MAIL FROM:<a@c.test>\r\n"
	const data = mail + "RCPT TO:<b@x.test>\r\nDATA\r\n"
	for name, c := range map[string]struct {
		first string
		then  io.Reader // nil where that is all
		last  string
		want  string // starts the reply to it
	}{
		"no command":              {"\xff\xfe\xfd\r\n", nil, "", "500 5.5.2"},
		"an empty line":           {"\r\n", nil, "", "500 5.5.2"},
		"a greeting in TLS":       {"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n", nil, "", "500 5.5.2"},
		"an endless command line": {"", endless("x", 2<<20), "", "500 5.5.2 Line too long, closing connection"},
		"a malformed address":     {ehlo, nil, "MAIL FROM:<a b@c.test>\r\n", "501 5.1.7"},
		"an address that is no UTF-8": {
			ehlo, nil, "MAIL FROM:<\xc3(@c.test> SMTPUTF8\r\n", "501 5.1.7",
		},
		"a malformed recipient":        {mail, nil, "RCPT TO:<b@x.test\r\n", "501 5.1.3"},
		"a malformed size":             {ehlo, nil, "MAIL FROM:<a@c.test> SIZE=many\r\n", "501 5.5.4"},
		"a malformed xtext":            {ehlo, nil, "MAIL FROM:<a@c.test> ENVID=+ZZ\r\n", "501 5.5.4"},
		"a malformed NOTIFY":           {mail, nil, "RCPT TO:<b@x.test> NOTIFY=NEVER,SUCCESS\r\n", "501 5.5.4"},
		"an unknown BODY":              {ehlo, nil, "MAIL FROM:<a@c.test> BODY=9BIT\r\n", "501 5.5.4"},
		"BINARYMIME":                   {ehlo, nil, "MAIL FROM:<a@c.test> BODY=BINARYMIME\r\n", "555 5.5.4"},
		"parameters without end":       {ehlo, nil, "MAIL FROM:<a@c.test>" + strings.Repeat(" X=Y", 400) + "\r\n", "555 5.5.4"},
		"a flood of recipients":        {mail, endless("RCPT TO:<b@x.test>\r\n", 20*100), "RCPT TO:<b@x.test>\r\n", "452 4.5.3"},
		"a flood of commands":          {"", endless("NOOP\r\n", 6*500), "NOOP\r\n", "421 4.7.0"},
		"a line of content of 256 MiB": {data, endless("x", 256<<20), "\r\n.\r\n", "554 5.6.0 Line longer than 65536 octets"},
		"a header without end":         {data, endless("Subject: x\r\n", 12*10_000), "\r\n.\r\n", "552 5.3.4"},
		"a header field without end":   {data, endless(" x\r\n", 4*30_000), "\r\n.\r\n", "552 5.3.4"},
		"a Received field after another": {
			data, endless("Received: x\r\n", 13*101), "\r\nx\r\n.\r\n", "554 5.4.6",
		},
		"bare line feeds": {data, nil, "a\nb\r\n.\r\n", "554 5.6.0 bare LF at octet 1"},
		"NUL in a command": {
			ehlo, nil, "MAIL FROM:<a\x00@c.test>\r\n", "500 5.5.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
				c.MaxSize, c.MaxRecipients, c.MaxCommands = 64<<10, 100, 500
			}})
			d := e.dial(t)
			before, _ := inUse()
			sent := make(chan error, 1)
			go func() { sent <- d.sendAll(c.first, c.then, c.last) }()
			got := d.lastReply(c.want)
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("the last reply is %.100q, want %q", got, c.want)
			}
			if err := <-sent; err != nil && !strings.HasSuffix(c.want, "closing connection") && !strings.HasPrefix(c.want, "421") {
				t.Error(err)
			}
			if after, _ := inUse(); after-before > 4<<20 {
				t.Errorf("memory grew by %.0f octets", after-before)
			}
			_ = d.Close() // it may have been closed by the other end
			e.stop()
			if n := len(e.spool.all()); n > 0 {
				t.Errorf("%d messages stored", n)
			}
			if n := len(hadRefusals.FindAllString(e.logs.String(), -1)); n != 1 {
				t.Errorf("%d lines tell of refusals, want one:\n%s", n, e.logs.String())
			}
		})
	}
}

// sendAll sends all of it, or as much as the other end takes.
func (d *dialog) sendAll(first string, then io.Reader, last string) error {
	if err := d.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if then == nil {
		then = strings.NewReader("")
	}
	_, err := io.Copy(d.Conn, io.MultiReader(strings.NewReader(first), then, strings.NewReader(last)))
	return err
}

// lastReply reads replies up to one that is wanted, or to the end of the connection.
func (d *dialog) lastReply(want string) (last string) {
	d.t.Helper()
	if err := d.SetReadDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	for {
		line, err := d.r.ReadString('\n')
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.t.Fatalf("no further reply after %q", last)
		case err != nil:
			return last
		}
		if last = line; strings.HasPrefix(line, want) {
			return last
		}
	}
}

// A client that closes its half of the connection behind a whole session still gets all replies, and the message counts.
func TestHalfClosed(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	d := e.dial(t)
	d.send("EHLO c.test\r\nMAIL FROM:<a@c.test>\r\nRCPT TO:<b@x.test>\r\nDATA\r\n")
	for _, want := range []string{"250-", "250 ", "250 ", "354 "} {
		d.want(want)
	}
	d.send("x\r\n.\r\nNOOP\r\n")
	if err := d.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	d.want("250 2.0.0 Ok: queued as ")
	d.want("250 ")
	d.wantClosed()
	if n := len(e.spool.all()); n != 1 {
		t.Errorf("%d messages stored, want one", n)
	}
}
