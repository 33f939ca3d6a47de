//go:build processes

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// The spool ends at each of its fault points, as by a kill, while mail comes in: what was accepted arrives once (P1, P2),
// an attempt of which nobody knows is told to be unknown (P3), and no two own a message (P4: the audit).
func TestSpoolEndsAtFaultPoint(t *testing.T) {
	p := startFaulty(t)
	for point, times := range map[fault.Point]int{
		fault.AcceptReceived: 20, fault.AcceptWriting: 20, fault.CommitWritten: 50, fault.CommitDone: 50, fault.AcceptDurable: 20,
		fault.PermitWriting: 20, fault.PermitDurable: 20, fault.ResultWriting: 20, fault.ResultDurable: 20, fault.JobSend: 50,
		fault.LeaseRenew: 1, fault.AdoptFenced: 1, fault.AdoptWritten: 1, // the last two where it takes over from its last start
	} {
		t.Run(string(point), func(t *testing.T) {
			tr := startTraffic(p, 4)
			tr.waitMore(t, 10)
			p.Kill("spool")
			p.StartProcess("spool", fmt.Sprintf("ROHRPOST_SPOOL_FAULTS=%s=exit@%d", point, times))
			if code := p.WaitExit("spool"); code != fault.ExitCode {
				t.Fatalf("exit code %d, want that of a fault\n%s", code, p.Log())
			}
			p.StartProcess("spool")
			tr.waitMore(t, 30)
			checkAllArrived(t, p, tr.end())
			p.CheckAudit()
		})
	}
}

func startFaulty(t *testing.T) *rohrtest.Pipeline {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithConfig(func(cfg *services.Config) {
		cfg.Spool.Unsafe = true // it allows faults; the database keeps what it commits all the same
		cfg.Spool.UnknownDelay, cfg.Spool.ReturnGrace = time.Second, 2*time.Second
		cfg.Spool.BackOff = []time.Duration{time.Second, 5 * time.Second}
	}))
}

// The same at the places that traffic alone does not reach.
func TestSpoolEndsAtSeldomFaultPoint(t *testing.T) {
	p := startFaulty(t)
	// strike starts the spool with a fault and does something until that has struck.
	strike := func(point fault.Point, start, do func()) {
		t.Helper()
		struck := func() int { return strings.Count(p.Log(), "A fault strikes") }
		before := struck()
		p.Kill("spool")
		p.StartProcess("spool", fmt.Sprintf("ROHRPOST_SPOOL_FAULTS=%s=exit", point))
		start()
		for deadline := time.Now().Add(rohrtest.Patience); struck() == before; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not strike", point)
			}
			do()
		}
	}

	large := mail("large", strings.Repeat(strings.Repeat("x", 70)+"\r\n", 10_000))
	strike(fault.ContentDurable, func() {}, func() {
		if _, err := p.TrySend("ann@a.example", []string{"bob@large.example"}, large); err == nil {
			t.Error("a mail was accepted by a spool that ended before it was whole")
		}
	})
	p.WaitExit("spool")
	p.StartProcess("spool")

	tr := startTraffic(p, 4)
	tr.waitMore(t, 20)
	strike(fault.HandOver, func() {
		tr.waitMore(t, 20)
		p.StopProcess("spool")
	}, func() {})
	p.StartProcess("spool")
	tr.waitMore(t, 30)
	checkAllArrived(t, p, tr.end())

	if _, err := p.Admin().SuspendDestination(t.Context(), &adminv1.SuspendDestinationRequest{Pattern: "b.example"}); err != nil {
		t.Fatal(err)
	}
	p.Kill("spool") // one that starts knows of it
	p.StartProcess("spool")
	waiting := map[string]string{}
	for deadline := time.Now().Add(rohrtest.Patience); len(waiting) < 10; {
		id, err := p.TrySend("ann@a.example", []string{"bob@b.example"}, mail("waits", "Hello.\r\n"))
		if err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
		if err != nil { // until the spool is there
			time.Sleep(50 * time.Millisecond)
			continue
		}
		p.Wait(id, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
		waiting[id] = "bob@b.example"
	}
	resume := func() error {
		_, err := p.Admin().ResumeDestination(t.Context(), &adminv1.ResumeDestinationRequest{Pattern: "b.example"})
		return err
	}
	strike(fault.ClaimDurable, func() {}, func() { _ = resume() })
	p.WaitExit("spool")
	p.StartProcess("spool")
	// The answer may have been lost with the spool, or something else was claimed before.
	for deadline := time.Now().Add(rohrtest.Patience); ; time.Sleep(50 * time.Millisecond) {
		err := resume()
		if err == nil || status.Code(err) == codes.NotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	checkAllArrived(t, p, waiting)
	p.CheckAudit()
}
