package gateway_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Case J2: a traceparent header counts from trusted clients only.
func TestTraceparent(t *testing.T) {
	for _, c := range []struct {
		name, trust, header string
		continued           bool
	}{
		{"case J2 trusted", "127.0.0.0/8", "Traceparent: " + traceparent + "\r\n", true},
		{"case J2 stranger", "192.0.2.0/24", "Traceparent: " + traceparent + "\r\n", false},
		{"malformed", "127.0.0.0/8", "traceparent: 00-x\r\n", false},
		{"in the body", "127.0.0.0/8", "S: x\r\n\r\nTraceparent: " + traceparent + "\r\n", false},
		{"none", "127.0.0.0/8", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := &recorder{}
			e := start(t, &fakeSpool{}, startOptions{provider: rec, change: func(cfg *gateway.Config) {
				cfg.TrustTraceparent = []netip.Prefix{netip.MustParsePrefix(c.trust)}
			}})
			before := time.Now()
			if reply := deliverData(t, e, c.header+"\r\nx\r\n.\r\n"); !strings.HasPrefix(reply, "250 ") {
				t.Fatal(reply)
			}
			e.stop()
			sessions, txs := rec.named("smtp.session"), rec.named("smtp.transaction")
			if len(sessions) != 1 || len(txs) != 1 {
				t.Fatalf("%d session spans, %d transaction spans, want one of each", len(sessions), len(txs))
			}
			tx, msg := txs[0], e.spool.all()[0]
			if got := tx.context.TraceID().String() == traceparent[3:35] && tx.parent.SpanID().String() == traceparent[36:52]; got != c.continued {
				t.Errorf("continued: %v, want %v", got, c.continued)
			}
			if tx.context.TraceID() == sessions[0].context.TraceID() || sessions[0].parent.IsValid() {
				t.Error("the session must have a trace of its own")
			}
			if len(tx.links) != 1 || !tx.links[0].SpanContext.Equal(sessions[0].context) {
				t.Errorf("links %v, want the session", tx.links)
			}
			if !msg.span.Equal(tx.context) {
				t.Error("the spool got another span")
			}
			if id := tx.attrs["rohrpost.message.id"].AsString(); id != msg.sub.ID.String() {
				t.Errorf("rohrpost.message.id %q", id)
			}
			if s := tx.attrs["rohrpost.session.id"].AsString(); s == "" || s != sessions[0].attrs["rohrpost.session.id"].AsString() {
				t.Errorf("rohrpost.session.id %q", s)
			}
			if tx.started.Before(before) || tx.started.After(time.Now()) {
				t.Errorf("started at %v", tx.started)
			}
		})
	}
}

// However messages interleave, none gets another's trace, id or session.
func TestNothingLeaksBetweenMessages(t *testing.T) {
	rec := &recorder{}
	e := start(t, &fakeSpool{}, startOptions{provider: rec, change: func(cfg *gateway.Config) {
		cfg.TrustTraceparent = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	const conns, each = 4, 50
	traceID := func(c, i int) string { return fmt.Sprintf("%032x", 1000*(c+1)+i) }
	var wg sync.WaitGroup
	ids := make([]map[string]string, conns) // trace id by message id, as the client saw it
	for c := range conns {
		d := e.dial(t)
		d.cmd("EHLO c.test", "250-")
		ids[c] = make(map[string]string)
		wg.Go(func() {
			for i := range each {
				content := "Traceparent: 00-" + traceID(c, i) + "-00000000000000ff-01\r\n\r\nx\r\n"
				begin := "MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\n"
				transfer, replies := "DATA\r\n"+content+".\r\n", 4
				if i%2 == 1 {
					transfer, replies = fmt.Sprintf("BDAT %d LAST\r\n%s", len(content), content), 3
				}
				if _, err := d.Write([]byte(begin + transfer)); err != nil {
					t.Error(err)
					return
				}
				var last string
				for range replies {
					line, err := d.r.ReadString('\n')
					if err != nil {
						t.Error(err)
						return
					}
					last = line
				}
				id, ok := strings.CutPrefix(strings.TrimSpace(last), "250 2.0.0 Ok: queued as ")
				if !ok {
					t.Errorf("reply %q", last)
				}
				ids[c][id] = traceID(c, i)
			}
		})
	}
	wg.Wait()
	e.stop()
	want, sessions := map[string]string{}, map[string]string{}
	for _, m := range ids {
		for id, tid := range m {
			want[id] = tid
		}
	}
	for _, m := range e.spool.all() {
		id := m.sub.ID.String()
		sessions[id] = m.sub.Envelope.Reception.SessionId
		if m.span.TraceID().String() != want[id] || !strings.Contains(m.content, want[id]) {
			t.Errorf("message %s has trace %s, want %s", id, m.span.TraceID(), want[id])
		}
	}
	txs := rec.named("smtp.transaction")
	if len(want) != conns*each || len(txs) != conns*each {
		t.Errorf("%d messages, %d spans", len(want), len(txs))
	}
	for _, tx := range txs {
		id := tx.attrs["rohrpost.message.id"].AsString()
		if tx.context.TraceID().String() != want[id] || tx.attrs["rohrpost.session.id"].AsString() != sessions[id] {
			t.Errorf("span of %s has trace %s, want %s", id, tx.context.TraceID(), want[id])
		}
	}
	for line := range strings.Lines(e.logs.String()) {
		_, rest, ok := strings.Cut(line, " message=")
		if id, _, _ := strings.Cut(rest, " "); ok && !strings.Contains(line, " session="+sessions[id]+" ") {
			t.Errorf("log line of another session: %s", line)
		}
	}
	if n := strings.Count(e.logs.String(), "message accepted"); n != conns*each {
		t.Errorf("%d log lines, want one a message", n)
	}
}

// A transaction that ends without content has a span, too.
func TestAbortedTransaction(t *testing.T) {
	rec := &recorder{}
	e := start(t, &fakeSpool{}, startOptions{provider: rec})
	d := e.dial(t)
	d.envelope()
	d.cmd("RSET", "250 ")
	d.send("MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nBDAT 0\r\nRSET\r\nMAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nBDAT 0\r\nQUIT\r\n")
	for _, want := range []string{"250 ", "250 ", "250 ", "250 ", "250 ", "250 ", "250 ", "221 "} {
		d.want(want)
	}
	e.stop()
	txs := rec.named("smtp.transaction")
	if len(txs) != 3 {
		t.Fatalf("%d spans, want 3", len(txs))
	}
	for _, tx := range txs {
		if !tx.attrs["rohrpost.smtp.aborted"].AsBool() || tx.parent.IsValid() {
			t.Errorf("attributes %v", tx.attrs)
		}
	}
}
