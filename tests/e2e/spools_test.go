//go:build processes

package e2e

import (
	"strings"
	"syscall"
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

// secondSpool is the environment of another spool than that of the configuration.
func secondSpool(t *testing.T) []string {
	t.Helper()
	listen := freePort(t)
	return []string{
		"ROHRPOST_SPOOL_NAME=second", "ROHRPOST_SPOOL_LISTEN=" + listen, "ROHRPOST_SPOOL_ADVERTISE=" + listen,
		"ROHRPOST_SPOOL_HTTP_LISTEN=127.0.0.1:0",
	}
}

// waitJoined waits until the gateway gives mail to the second spool.
func waitJoined(t *testing.T, p *rohrtest.Pipeline) {
	t.Helper()
	for deadline := time.Now().Add(rohrtest.Patience); ; {
		id, err := p.TrySend("ann@a.example", []string{"bob@b.example"}, mail("who", "Hello.\r\n"))
		if err != nil && time.Now().Before(deadline) { // the other spool has just lost its lease
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
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

// SIGSTOP of a spool under traffic until its lease is over and the other one has its messages, then SIGCONT: what it writes, gives
// out and says from then on doesn't count (promise P4). All that was accepted arrives, and nothing twice but where that is told.
func TestStoppedSpoolWakesUp(t *testing.T) {
	p := startProcesses(t)
	p.StartProcess("spool-2", secondSpool(t)...)
	tr := startTraffic(p, 8)
	for range 2 {
		waitJoined(t, p)
		tr.waitMore(t, 100)
		waitLog := func(text string, count int) {
			t.Helper()
			for deadline := time.Now().Add(rohrtest.Patience); strings.Count(p.Log(), text) < count; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the log does not say %q", text)
				}
			}
		}
		adoptions, losses := strings.Count(p.Log(), adopted), strings.Count(p.Log(), lost)
		pid := p.PID("spool-2")
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		waitLog(adopted, adoptions+1)
		tr.waitMore(t, 100)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		waitLog(lost, losses+1)
		tr.waitMore(t, 100)
	}
	checkAllArrived(t, p, tr.end())
	p.CheckAudit()
}

// What spools log.
const (
	adopted = "Messages of dead spools are adopted"
	lost    = "The spool has lost its lease and starts anew"
)

// Two spools share the load: the gateway hears of the second from the first. One that is killed under traffic is left, what it
// had ends once all the same, and it is joined again.
func TestTwoSpoolsShareTheLoad(t *testing.T) {
	p := startProcesses(t)
	env := secondSpool(t)
	p.StartProcess("spool-2", env...)
	waitJoined(t, p)
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
	waitJoined(t, p)
	tr.waitMore(t, 100)
	checkAllArrived(t, p, tr.end())
}
