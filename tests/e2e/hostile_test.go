package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// raw is an SMTP client that sends octets as they are.
type raw struct {
	t *testing.T
	*textproto.Conn
}

func dialRaw(t *testing.T, p *rohrtest.Pipeline) raw {
	t.Helper()
	c, err := (&net.Dialer{Timeout: rohrtest.Patience}).DialContext(t.Context(), "tcp", p.SMTP())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(rohrtest.Patience)); err != nil {
		t.Fatal(err)
	}
	r := raw{t, textproto.NewConn(c)}
	r.want(220)
	return r
}

// want reads a reply, whose code must start with the digits of code, and returns its text.
func (r raw) want(code int) string {
	r.t.Helper()
	_, text, err := r.ReadResponse(code)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r raw) cmd(line string, code int) string {
	r.t.Helper()
	if _, err := r.W.WriteString(line + "\r\n"); err != nil {
		r.t.Fatal(err)
	}
	if err := r.W.Flush(); err != nil {
		r.t.Fatal(err)
	}
	return r.want(code)
}

// Octets that are no text where text is expected hurt nobody: protobuf takes only UTF-8, Postgres no NUL (promise P5).
func TestOctetsThatAreNoText(t *testing.T) {
	p := rohrtest.Start(t)
	const odd = "\xff\xfe\x80\x1b[31m\x7f"
	for name, content := range map[string][]byte{
		"Subject":        mail("a"+odd+"\x00b", "x"+odd+"\x00\r\n"),
		"nothing but":    []byte(odd + "\x00\r\n\r\n" + odd),
		"type":           []byte("Content-Type: text/plain; charset=" + odd + "\x00; name*=" + odd + "''%FF%00\r\nContent-Disposition: " + odd + "; filename=\"\x00\xff\"\r\n\r\n" + odd),
		"addresses":      []byte("From: \"" + odd + "\x00\" <" + odd + "\x00@a.example>\r\nMessage-ID: <" + odd + "\x00>\r\n\r\nx\r\n"),
		"signature":      []byte("DKIM-Signature: v=1; a=rsa-sha256; d=" + odd + "\x00; s=\x00\xff; b=\x00\xff; bh=x; h=from\r\nFrom: a\r\n\r\nx\r\n"),
		"no signature":   []byte("DKIM-Signature\r\nDKIM-Signature: v=1; d=a.example; s=s\r\nFrom: a\r\n\r\nx\r\n"),
		"forged results": []byte("Authentication-Results: " + odd + "\x00; spf=pass\r\nAuthentication-Results: \"" + odd + "\r\n\r\nx\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, p)
			c.cmd("EHLO "+odd, 500)
			c.cmd("EHLO \xff\xfe\x80", 250)
			c.cmd("MAIL FROM:<\xff@a.example> SMTPUTF8", 501)
			c.cmd("MAIL FROM:<\xff@a.example>", 553)
			c.cmd("MAIL FROM:<ann@a.example>", 250)
			c.cmd("RCPT TO:<\"\xff\"@b.example>", 553)
			c.cmd("RCPT TO:<odd@b.example>", 250)
			c.cmd("DATA", 354)
			text := c.cmd(string(content)+"\r\n.", 250)
			id := text[strings.LastIndexByte(text, ' ')+1:]
			checkArrived(t, p, append(bytes.Clone(content), '\r', '\n'), p.WaitEnded(id))
		})
	}
	t.Run("null sender and an odd HELO", func(t *testing.T) {
		c := dialRaw(t, p)
		c.cmd("HELO a\xff.example", 250)
		c.cmd("MAIL FROM:<>", 250)
		c.cmd("RCPT TO:<odd@b.example>", 250)
		c.cmd("DATA", 354)
		text := c.cmd("Subject: x\r\n\r\nx\r\n.", 250)
		p.WaitEnded(text[strings.LastIndexByte(text, ' ')+1:])
	})
	t.Run("addresses of odd but valid text", func(t *testing.T) {
		c := dialRaw(t, p)
		c.cmd("EHLO ü.example", 250)
		c.cmd("MAIL FROM:<\"a@b\\\"> \u202e\u0085\"@ü.example> SMTPUTF8", 250)
		c.cmd("RCPT TO:<\"../../x y\\\\\u009b\u2028\"@ü.example>", 250)
		c.cmd("RCPT TO:<\"..\"@b.example>", 250)
		c.cmd("DATA", 354)
		text := c.cmd("Subject: x\r\n\r\nx\r\n.", 250)
		checkArrived(t, p, []byte("Subject: x\r\n\r\nx\r\n"), p.WaitEnded(text[strings.LastIndexByte(text, ' ')+1:]))
	})
}

// A next hop that refuses many recipients with as much text as it can, in octets that are no text, gets its message
// bounced, and the others are not held up.
func TestTalkativeNextHop(t *testing.T) {
	hop := talkative(t)
	p := rohrtest.Start(t, rohrtest.WithConfig(func(cfg *services.Config) {
		match, err := pattern.Parse("talkative.example")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Deliver.Routes = append([]deliver.Route{{
			Match: []pattern.Pattern{match}, Via: deliver.ViaSMTP, SMTP: deliver.SMTPRoute{Address: hop},
		}}, cfg.Deliver.Routes...)
	}))
	to := make([]string, 0, 1000)
	for i := range 1000 {
		to = append(to, fmt.Sprintf("%04d%s@talkative.example", i, strings.Repeat("x", 60)))
	}
	content := mail("talk", "Hello.\r\n")
	content = append([]byte(strings.Repeat("X-Long: "+strings.Repeat("x", 900)+"\r\n", 70)), content...)
	m := p.WaitEnded(p.Send("ann@a.example", to, content))
	for _, r := range m.GetSummary().GetRecipients() {
		if r.GetState() != mailv1.RecipientState_RECIPIENT_STATE_BOUNCED {
			t.Fatalf("got %v", r)
		}
	}
	if got := len(waitMail(t, p, "ann@a.example", 10)); got != 10 {
		t.Errorf("%d notifications", got)
	}
	id := p.Send("ann@a.example", []string{"bob@b.example"}, mail("after", "Hello.\r\n"))
	checkArrived(t, p, mail("after", "Hello.\r\n"), p.WaitEnded(id))
}

// talkative is a server that refuses every recipient in many words.
func talkative(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	refusal := strings.Repeat("550-5.1.1 \xff\x00\x1b[31m "+strings.Repeat("ü", 1000)+"\r\n", 10) + "550 5.1.1 \x80\r\n"
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, "220 \xff\r\n")
				for in := bufio.NewScanner(c); in.Scan(); {
					switch reply := "250 \xff\r\n"; strings.ToUpper(in.Text()[:4]) {
					case "RCPT":
						_, _ = io.WriteString(c, refusal)
					case "QUIT":
						_, _ = io.WriteString(c, "221 \x00\r\n")
						return
					default:
						_, _ = io.WriteString(c, reply)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
