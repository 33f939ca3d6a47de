package gateway_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// Case D5: a command line ends with CRLF; LF alone is borne only where newlines are normalised.
func TestCommandLineEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy gateway.BareNewline
		raw    string
		want   []string
	}{
		{"case D5 LF refused", gateway.BareNewlineReject, "NOOP\nNOOP\r\n", []string{"500 5.5.2 Command lines must end with CRLF", "250 "}},
		{"case D5 LF borne", gateway.BareNewlineNormalize, "NOOP\nNOOP\r\n", []string{"250 ", "250 "}},
		{"bare CR", gateway.BareNewlineNormalize, "NOOP\rNOOP\r\n", []string{"500 5.5.2"}},
		{"NUL", gateway.BareNewlineReject, "NO\x00OP\r\n", []string{"500 5.5.2"}},
		{"many", gateway.BareNewlineReject, strings.Repeat("x\n", 21), append(strings.Split(strings.Repeat("500 ,", 21), ",")[:21], "421 4.7.0")},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, &fakeSpool{}, startOptions{change: func(cfg *gateway.Config) { cfg.BareNewline = c.policy }}).dial(t)
			d.send(c.raw)
			for _, want := range c.want {
				d.want(want)
			}
		})
	}
}

// Cases D7 and D11: a command line is bounded, after BDAT as well, and read in constant memory.
func TestLongCommandLine(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	d.cmd("NOOP "+strings.Repeat("x", 3000), "500 5.5.2 Line too long")
	d.cmd("NOOP "+strings.Repeat("x", 100_000), "500 5.5.2 Line too long")
	d.envelope()
	d.send("BDAT 3000\r\n" + strings.Repeat("x", 3000))
	d.want("250 ")
	d.cmd("RSET", "250 ")
	d.cmd("NOOP "+strings.Repeat("x", 3000), "500 5.5.2 Line too long") // case D7
	d.cmd("NOOP", "250 ")
	// Case D11: the client never ends its line.
	chunk := strings.Repeat("x", 64<<10)
	for range 17 {
		if _, err := io.WriteString(d, chunk); err != nil {
			break // closed already
		}
	}
	d.want("500 5.5.2 Line too long, closing connection")
	d.wantClosed()
}

// Case D11: content without a line end, as much as the client likes.
func TestEndlessLineOfContent(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	d := e.dial(t)
	d.envelope()
	d.cmd("DATA", "354 ")
	chunk := strings.Repeat("x", 1<<20)
	for range 60 {
		d.send(chunk)
	}
	d.send("\r\n.\r\n")
	d.want("554 5.6.0 Line longer than")
	d.cmd("NOOP", "250 ")
}

// Case D6: whatever becomes of a BDAT command, its chunk is never read as commands.
func TestRefusedBDAT(t *testing.T) {
	t.Run("no recipient, pipelined", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{}).dial(t)
		d.cmd("EHLO c.test", "250-")
		d.send("MAIL FROM:<>\r\nRCPT TO:<bad>\r\nBDAT 6 LAST\r\nNOOP\r\nQUIT\r\n")
		for _, want := range []string{"250 ", "501 ", "503 5.5.1", "221 "} {
			d.want(want)
		}
	})
	for _, args := range []string{"x LAST", "-1", "", "5 LAST x", "5 FIRST", "99999999999999999999"} {
		t.Run("unreadable: "+args, func(t *testing.T) {
			d := start(t, &fakeSpool{}, startOptions{}).dial(t)
			d.envelope()
			d.send("BDAT " + args + "\r\nNOOP\r\nNOOP\r\n")
			d.want("501 5.5.4")
			d.wantClosed()
		})
	}
	t.Run("unreadable after a good one", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{}).dial(t)
		d.envelope()
		d.send("BDAT 3\r\nx\r\nBDAT x LAST\r\nNOOP\r\n")
		d.want("250 ")
		d.want("501 5.5.4")
		d.wantClosed()
	})
}

// What a client may say between two chunks. (RFC 3030, section 2.)
func TestBetweenChunks(t *testing.T) {
	begin := []step{{"MAIL FROM:<>", "250 "}, {"RCPT TO:<a@x.test>", "250 "}, {"BDAT 1\r\nx", "250 2.0.0 Continue"}}
	last := step{"BDAT 1 LAST\r\ny", "250 2.0.0 Ok: queued"}
	for name, c := range map[string]struct {
		between []step
		stored  []string
	}{
		"nothing":       {[]step{last}, []string{"xy\r\n"}},
		"NOOP":          {[]step{{"NOOP", "250 "}, last}, []string{"xy\r\n"}},
		"commands":      {[]step{{"MAIL FROM:<>", "503 "}, {"RCPT TO:<b@x.test>", "503 "}, {"DATA", "503 "}, last}, []string{"xy\r\n"}},
		"RSET":          {[]step{{"RSET", "250 "}, {"BDAT 1 LAST\r\ny", "503 "}}, nil},
		"RSET and anew": {append(append([]step{{"RSET", "250 "}}, begin...), last), []string{"xy\r\n"}},
		"EHLO":          {[]step{{"EHLO c.test", "250-mx.test"}, {"DATA", "503 "}}, nil},
		"EHLO and anew": {append(append([]step{{"EHLO c.test", "250-mx.test"}}, begin...), last), []string{"xy\r\n"}},
		"QUIT":          {[]step{{"QUIT", "221 "}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			d := e.dial(t)
			d.cmd("EHLO c.test", "250-")
			// All at once: a reply too many or too few would show.
			steps := append(append([]step(nil), begin...), c.between...)
			for _, s := range steps {
				d.send(s.send + strings.Repeat("\r\n", 1-strings.Count(s.send, "\r\n")))
			}
			for _, s := range steps {
				d.want(s.want)
			}
			if got := e.spool.all(); len(got) != len(c.stored) || len(got) > 0 && got[0].content != c.stored[0] {
				t.Errorf("stored %v, want %q", got, c.stored)
			}
		})
	}
}

// Replies to a pipelined group come in one piece. (RFC 2920, section 3.2.)
func TestRepliesAreCoalesced(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	d.cmd("EHLO c.test", "250-")
	d.send("MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nRCPT TO:<b@x.test>\r\nDATA\r\n")
	buf := make([]byte, 4096)
	n, err := d.Read(buf)
	if err != nil || strings.Count(string(buf[:n]), "\r\n") != 4 {
		t.Errorf("first read: %q, %v, want four replies", buf[:n], err)
	}
}

// Content that stands in the same packet as DATA and what follows it.
func TestEagerClient(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	d := e.dial(t)
	d.send("EHLO c.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nDATA\r\nx\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\n" +
		"BDAT 3 LAST\r\ny\r\nQUIT\r\n")
	for _, want := range []string{"250-", "250 ", "250 ", "354 ", "250 2.0.0 Ok: queued", "250 ", "250 ", "250 2.0.0 Ok: queued", "221 "} {
		d.want(want)
	}
	d.wantClosed()
	if got := e.spool.all(); len(got) != 2 || got[0].content != "x\r\n" || got[1].content != "y\r\n" {
		t.Errorf("stored %v", got)
	}
}

// Case D10.
func TestMaxSessions(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxSessions = 2 }})
	first := e.dial(t)
	e.dial(t)
	third := e.dialRaw(t)
	third.want("421 4.3.2 mx.test Too many sessions")
	third.wantClosed()
	first.cmd("QUIT", "221 ")
	first.wantClosed()
	for deadline := time.Now().Add(patience); ; { // the place is free a moment after the client sees the end
		d := e.dialRaw(t)
		if strings.HasPrefix(d.reply(), "220 ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of the first session stays taken")
		}
	}
}

// A message whose client is gone before its end is not accepted.
func TestClientGoneInContent(t *testing.T) {
	large := strings.Repeat(strings.Repeat("x", 998)+"\r\n", 200)
	for name, raw := range map[string]string{
		"DATA":                 "DATA\r\nx\r\n",
		"DATA before the LF":   "DATA\r\nx\r\n.\r",
		"BDAT LAST":            "BDAT 100 LAST\r\nx\r\n",
		"BDAT between chunks":  "BDAT 3\r\nx\r\n",
		"DATA, streamed":       "DATA\r\n" + large,
		"BDAT LAST, streamed":  "BDAT 1000000 LAST\r\n" + large,
		"BDAT, then half LAST": "BDAT 3\r\nx\r\nBDAT 100 LAST\r\nx\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			d := e.dial(t)
			d.envelope()
			d.send(raw)
			if err := d.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, d); err != nil {
				t.Fatal(err)
			}
			e.stop()
			if n := len(e.spool.all()); n != 0 {
				t.Errorf("%d messages stored", n)
			}
			// One line, which does not sound as if something were wrong here.
			logs := e.logs.String()
			if strings.Count(logs, "\n") != 1 || !strings.Contains(logs, `level=INFO msg="message broken off" session=`) {
				t.Errorf("logged %s", logs)
			}
		})
	}
}

// At the end: idle sessions get 421 at once, a message under way still gets its answer. (RFC 5321, section 3.8.)
func TestShutdown(t *testing.T) {
	spool := &fakeSpool{}
	e := start(t, spool, startOptions{})
	idle, fresh, half, busy := e.dial(t), e.dial(t), e.dial(t), e.dial(t)
	idle.cmd("EHLO c.test", "250-")
	half.send("NOO")
	busy.envelope()
	busy.cmd("DATA", "354 ")
	busy.send("x\r\n")
	e.halt()
	for _, d := range []*dialog{idle, fresh, half} {
		d.want("421 4.3.2 mx.test ")
		d.wantClosed()
	}
	select {
	case <-e.done:
		t.Fatal("Run returned with a message under way")
	default:
	}
	busy.send("y\r\n.\r\n")
	busy.want("250 2.0.0 Ok: queued")
	busy.want("421 4.3.2 ")
	busy.wantClosed()
	e.stop()
	if got := spool.all(); len(got) != 1 || got[0].content != "x\r\ny\r\n" {
		t.Errorf("stored %v", got)
	}
}

// A client that sends content for longer than timeouts.shutdown is told so, nothing is accepted, and Run returns.
func TestShutdownGrace(t *testing.T) {
	for _, raw := range []string{"x\r\n", strings.Repeat("x\r\n", gateway.InlineLimit)} {
		e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.Timeouts.Shutdown = 50 * time.Millisecond }})
		d := e.dial(t)
		d.envelope()
		d.cmd("DATA", "354 ")
		d.send(raw)
		e.stop()
		d.want("421 4.3.2 mx.test ")
		d.wantClosed()
		if n := len(e.spool.all()); n != 0 {
			t.Errorf("%d messages stored", n)
		}
	}
}
