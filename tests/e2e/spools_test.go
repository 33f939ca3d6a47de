//go:build processes

package e2e

import (
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// answeredBy tells which spool made a message durable.
func answeredBy(p *rohrtest.Pipeline) map[string]string {
	spools := map[string]string{}
	for _, s := range p.AllSpans() {
		if s.Name == "spool.submit" && !s.Failed {
			spools[s.Attributes["rohrpost.message.id"]] = s.Attributes["rohrpost.spool"]
		}
	}
	return spools
}

// Two spools share the load: the gateway hears of the second from the first. One that is killed under traffic is left, what it
// had ends once all the same, and it is joined again.
func TestTwoSpoolsShareTheLoad(t *testing.T) {
	p := startProcesses(t)
	listen := freePort(t)
	env := []string{
		"ROHRPOST_SPOOL_NAME=second", "ROHRPOST_SPOOL_LISTEN=" + listen, "ROHRPOST_SPOOL_ADVERTISE=" + listen,
		"ROHRPOST_SPOOL_HTTP_LISTEN=127.0.0.1:0",
	}
	joined := func() {
		t.Helper()
		for deadline := time.Now().Add(rohrtest.Patience); ; {
			id := p.Send("ann@a.example", []string{"bob@b.example"}, mail("who", "Hello.\r\n"))
			for _, s := range p.WaitSpans(p.WaitEnded(id).GetSummary().GetTraceId(), "spool.submit") {
				if s.Attributes["rohrpost.spool"] == "second" {
					return
				}
			}
			if time.Now().After(deadline) {
				t.Fatal("the second spool gets nothing")
			}
		}
	}
	p.StartProcess("spool-2", env...)
	joined()
	tr := startTraffic(p, 8)
	tr.waitMore(t, 400)
	shared := tr.end()
	checkAllArrived(t, p, shared)
	atSecond, spools := 0, answeredBy(p)
	for id := range shared {
		if spools[id] == "second" {
			atSecond++
		}
	}
	if share := 100 * atSecond / len(shared); share < 35 || share > 65 {
		t.Errorf("the second spool took %d %% of %d, want 35 to 65", share, len(shared))
	}
	tr = startTraffic(p, 8)
	tr.waitMore(t, 100)
	p.Kill("spool-2")
	tr.waitMore(t, 200)
	p.StartProcess("spool-2", env...)
	joined()
	tr.waitMore(t, 100)
	checkAllArrived(t, p, tr.end())
}
