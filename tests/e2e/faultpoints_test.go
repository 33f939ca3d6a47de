//go:build processes

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// The spool ends at each of its fault points, as by a kill, while mail comes in: what was accepted arrives once (P1, P2),
// an attempt of which nobody knows is told to be unknown (P3), and no two own a message (P4: the audit).
func TestSpoolEndsAtFaultPoint(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithConfig(func(cfg *services.Config) {
		cfg.Spool.Unsafe = true // it allows faults; the database keeps what it commits all the same
		cfg.Spool.UnknownDelay, cfg.Spool.ReturnGrace = time.Second, 2*time.Second
		cfg.Spool.BackOff = []time.Duration{time.Second, 5 * time.Second}
	}))
	for point, times := range map[fault.Point]int{
		fault.AcceptReceived: 20, fault.AcceptWriting: 20, fault.CommitWritten: 50, fault.CommitDone: 50, fault.AcceptDurable: 20,
		fault.PermitWriting: 20, fault.PermitDurable: 20, fault.ResultWriting: 20, fault.ResultDurable: 20, fault.JobSend: 50,
		fault.LeaseRenew: 1,
	} {
		t.Run(string(point), func(t *testing.T) {
			p.Kill("spool")
			p.StartProcess("spool", fmt.Sprintf("ROHRPOST_SPOOL_FAULTS=%s=exit@%d", point, times))
			tr := startTraffic(p, 4)
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
