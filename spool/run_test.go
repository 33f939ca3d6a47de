package spool_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// A spool that stops waits for permitted jobs, refuses new ones, and hands over the rest at once.
func TestShutdownHandsOver(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		permitted := r.accept(submission("ann@x.example"))
		other := r.accept(submission("ann@y.example"))
		jobs := d.got()
		d.worker.RequestPermit(jobs[0].Token)
		synctest.Wait()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stop()
		}()
		synctest.Wait()
		d.mu.Lock()
		drained := d.drained
		d.mu.Unlock()
		if !drained {
			t.Error("the worker is not told to drain")
		}
		refusal(t, <-r.submit(submission("ann@x.example")), 451)
		if _, err := r.spool.Join(spool.StageParser, "late", "", d); err == nil {
			t.Error("a worker joins a spool that stops")
		}
		d.worker.RequestPermit(jobs[1].Token)
		if granted, answered := d.permit(jobs[1].Token); granted || !answered {
			t.Errorf("permit while stopping: %v, answered %v", granted, answered)
		}
		time.Sleep(2 * time.Second)
		d.worker.Result(jobs[0].Token, *attempt(jobs[0], isDelivered))
		<-stopped
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(permitted)); diff != "" {
			t.Error(diff)
		}
		if owners := r.store.Owners(other); len(owners) != 1 || owners[0] != 0 {
			t.Errorf("owners %v, want it handed over", owners)
		}
		if a := <-r.submit(submission("ann@x.example")); a.err == nil {
			t.Error("a stopped spool accepts")
		}

		next := startRig(r.t, r.store, "b", nil)
		defer next.stop()
		next.fronts()
		next.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(time.Second)
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, next.states(other)); diff != "" {
			t.Error(diff)
		}
	})
}

// Maintenance may hang for as long as somebody reads: neither adoption nor a stop waits for it.
func TestMaintenanceHoldsUpNothing(t *testing.T) {
	bubble(t, nil, func(a *rig) {
		var hangs atomic.Bool
		goOn := make(chan struct{})
		defer close(goOn)
		a.store.SetFaults(spooltest.Faults{Call: func(method string) error {
			switch method {
			case "Maintain":
				hangs.Store(true)
				<-goOn
			case "HandOver":
				return spool.ErrUnavailable
			}
			return nil
		}})
		b := startRig(a.t, a.store, "b", nil)
		id := b.accept(submission("ann@x.example"))
		time.Sleep(6 * time.Minute)
		b.stop() // and hands nothing over
		a.store.SetFaults(spooltest.Faults{})
		if !hangs.Load() {
			t.Fatal("nothing is maintained")
		}
		a.fronts()
		a.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(2 * time.Minute)
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, a.states(id)); diff != "" {
			t.Error(diff)
		}
		start := time.Now()
		a.stop()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it stopped after %s", took)
		}
	})
}

// Two spools on one store: what one left is adopted by the other, and the same id submitted there is not sent twice.
func TestTwoSpools(t *testing.T) {
	bubble(t, nil, func(a *rig) {
		b := startRig(a.t, a.store, "b", nil)
		defer b.stop()
		time.Sleep(10 * time.Second)
		if hello, _ := a.spool.Hello(); len(hello.Peers) != 1 || hello.Peers[0] != "b:1" {
			t.Errorf("peers %v", hello.Peers)
		}
		sub := submission("ann@x.example")
		a.accept(sub)
		again := b.submit(sub)
		synctest.Wait()
		if len(again) != 0 {
			t.Errorf("answered %v while another owns the message", <-again)
		}
		a.store.SetFaults(spooltest.Faults{Call: func(method string) error {
			if method == "Register" {
				return spool.ErrUnavailable // a must not come back and claim the message before b
			}
			return nil
		}})
		a.store.Fence(a.inc)
		b.fronts()
		d := b.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		if got := <-again; got.err != nil {
			t.Errorf("after adoption: %v", got.err)
		}
		time.Sleep(time.Second)
		if n := len(d.got()); n > 1 {
			t.Errorf("sent %d times", n)
		}
	})
}
