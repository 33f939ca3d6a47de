package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/smtp"
	"strings"
	"sync"
	"testing"

	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// A thousand messages with traceparents of their own over few connections, interleaved: no span and no log line carries
// another's id.
func TestContextNeverLeaks(t *testing.T) {
	const messages, sessions = 1000, 8
	p := rohrtest.Start(t)
	type sent struct{ id, trace string }
	all := make([]sent, messages)
	var wg sync.WaitGroup
	for s := range sessions {
		wg.Go(func() {
			c, err := smtp.Dial(p.SMTP())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close() //nolint:errcheck // the test is over then
			for i := s; i < messages; i += sessions {
				trace := randomHex(16)
				content := append([]byte("traceparent: 00-"+trace+"-"+randomHex(8)+"-01\r\n"), mail(fmt.Sprintf("trace%d", i), "Hello.\r\n")...)
				id, err := p.SendOn(c, "ann@a.example", []string{fmt.Sprintf("user%d@b.example", i%50)}, content)
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = sent{id, trace}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	traceOf := map[string]string{}
	for _, m := range all {
		traceOf[m.id] = m.trace
		if got := p.WaitEnded(m.id).GetSummary().GetTraceId(); got != m.trace {
			t.Fatalf("%s has trace %s, want its own %s", m.id, got, m.trace)
		}
	}
	for _, m := range all {
		p.WaitSpans(m.trace, "smtp.transaction", "spool.accept", "parser.job", "filter.job", "deliver.job")
	}
	seen := 0
	for _, s := range p.AllSpans() {
		id, ok := s.Attributes["rohrpost.message.id"]
		if !ok {
			if _, mine := traceOf[s.TraceID]; mine {
				t.Errorf("span %s of a message has no message id", s.Name)
			}
			continue
		}
		seen++
		if traceOf[id] != s.TraceID {
			t.Fatalf("span %s %s of message %s is in trace %s, want %s", s.Service, s.Name, id, s.TraceID, traceOf[id])
		}
	}
	if seen < 5*messages {
		t.Errorf("only %d spans carry a message id", seen)
	}
	for line := range strings.Lines(p.Log()) {
		checkLogLine(t, line, traceOf)
	}
}

// checkLogLine checks that a line which names a trace names no message of another.
func checkLogLine(t *testing.T, line string, traceOf map[string]string) {
	t.Helper()
	_, rest, ok := strings.Cut(line, "trace_id=")
	if !ok || len(rest) < 32 {
		return
	}
	_, id, ok := strings.Cut(line, "message_id=")
	if !ok || len(id) < 36 {
		return
	}
	if want := traceOf[id[:36]]; want != "" && want != rest[:32] {
		t.Errorf("a log line mixes messages: %s", line)
	}
}

func randomHex(octets int) string {
	b := make([]byte, octets)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
