package spool_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// heard is when a spool has heard of a suspension, at the latest.
const heard = 3 * time.Second

// suspend lets an operator suspend destinations, and nothing else, until the spool has heard.
func (r *rig) suspend(patterns ...string) {
	var list []spool.Suspension
	for _, p := range patterns {
		list = append(list, spool.Suspension{Pattern: pattern.MustParse(p), Since: time.Now()})
	}
	r.store.Suspend(list...)
	time.Sleep(heard)
}

// inMemory counts the messages that have not ended and that a spool holds.
func (r *rig) inMemory() int {
	n := 0
	for _, id := range r.store.Messages() {
		if _, there := r.spool.Live(id); there {
			n++
		}
	}
	return n
}

// Mail for a suspended destination is accepted and waits in the store; other mail goes on, and so does all when it is resumed.
func TestSuspendedDestinationWaits(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		r.suspend("*.example")
		r.suspend("x.example", "*.below.example")
		both := r.accept(submission("ann@X.example", "bob@y.example"))
		below := r.accept(submission("ann@a.below.example"))
		time.Sleep(time.Hour)
		if jobs := d.got(); len(jobs) != 1 || jobs[0].Destination != "y.example" {
			t.Fatalf("%d jobs, want one for y.example alone", len(jobs))
		}
		if n := r.inMemory(); n > 0 {
			t.Errorf("%d messages wait in memory", n)
		}
		r.suspend()
		time.Sleep(heard)
		r.ended(both, delivered)
		r.ended(below, delivered)
	})
}

// A message of which something else is under way stays in memory. It goes on at once as well.
func TestSuspendedBesideAnother(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		r.suspend("x.example")
		d := r.join(spool.StageDeliver, "d", 10, nil)
		r.accept(submission("ann@x.example", "bob@y.example"))
		if job := d.only(); job.Destination != "y.example" {
			t.Fatalf("a job for %s", job.Destination)
		}
		r.suspend()
		if jobs := d.got(); len(jobs) != 2 || jobs[1].Destination != "x.example" {
			t.Errorf("%d jobs, want one for x.example too", len(jobs))
		}
	})
}

// What a worker has already is finished. What it gives back waits.
func TestSuspendedUnderWay(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 2, nil)
		first, second := r.accept(submission("ann@x.example")), r.accept(submission("ann@x.example"))
		jobs := d.got()
		r.suspend("x.example")
		d.worker.RequestPermit(jobs[0].Token)
		if granted, _ := d.permit(jobs[0].Token); !granted {
			t.Error("no permit for a job that was given out before")
		}
		d.worker.Result(jobs[0].Token, *attempt(jobs[0], isDelivered))
		r.ended(first, delivered)
		d.leave()
		d = r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(time.Minute)
		if jobs := d.got(); len(jobs) > 0 {
			t.Error("the job that was given back went to another worker")
		}
		r.suspend()
		time.Sleep(heard)
		r.ended(second, delivered)
	})
}

// A suspension ends by itself, and outlives a restart: a spool that starts obeys it from its first job on.
func TestSuspensionEndsInTime(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		r.store.Suspend(spool.Suspension{Pattern: pattern.MustParse("*"), Until: time.Now().Add(time.Hour)})
		time.Sleep(heard)
		id := r.accept(submission("ann@x.example"))
		time.Sleep(time.Minute)
		r.stop()
		r.store.SetFaults(spooltest.Faults{Call: func(method string) error { // so that the first look for commands comes too soon
			if method == "Register" {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}})
		next := startRig(r.t, r.store, "b", nil)
		defer next.stop()
		time.Sleep(200 * time.Millisecond)
		next.fronts()
		d := next.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(58 * time.Minute)
		if jobs := d.got(); len(jobs) > 0 {
			t.Fatal("it was sent before its time")
		}
		time.Sleep(time.Minute + heard)
		next.ended(id, delivered)
	})
}

// Time runs on for what waits, and operators' commands are executed, a notification included.
func TestSuspendedMessagesEnd(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.MaxAge = 6 * time.Hour }, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		r.suspend("x.example")
		old, tried := r.accept(submission("ann@x.example")), r.accept(submission("ann@x.example"))
		gone, told := r.accept(submission("ann@x.example")), r.accept(submission("ann@x.example"))
		time.Sleep(time.Minute)
		if result := r.order(tried, spool.VerbRetry); !strings.Contains(result, "1 wait, since their destination is suspended") {
			t.Errorf("told %q", result)
		}
		r.order(gone, spool.VerbCancel)
		r.ended(gone, cancelled)
		r.order(told, spool.VerbBounce)
		time.Sleep(time.Minute)
		r.ended(told, bounced)
		time.Sleep(6*time.Hour + time.Minute)
		r.ended(old, mailv1.RecipientState_RECIPIENT_STATE_EXPIRED)
		for _, job := range d.got() {
			if job.Destination == "x.example" && job.Bounce == nil {
				t.Errorf("it was sent: %v", job)
			}
		}
	})
}

// Promise P6: what waits for suspended destinations takes no memory from others, neither what came before nor after. Here each
// has a destination of its own, so that no destination's share bounds them.
func TestSuspendedMailLeavesMemory(t *testing.T) {
	const room = 100
	bubble(t, func(c *spool.Config) { c.Messages = room }, func(r *rig) {
		r.fronts()
		for i := range room - 1 {
			r.accept(submission(fmt.Sprintf("ann@d%d.below.example", i)))
		}
		time.Sleep(heard)
		if n := r.inMemory(); n < room/2 {
			t.Fatalf("only %d messages are in memory, which is to be full", n)
		}
		r.suspend("*.below.example")
		if n := r.inMemory(); n > 0 {
			t.Fatalf("%d suspended messages are in memory", n)
		}
		for i := range 2 * room {
			r.accept(submission(fmt.Sprintf("ann@e%d.below.example", i)))
		}
		r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		id := r.accept(submission("ann@y.example"))
		time.Sleep(heard)
		r.ended(id, delivered)
		if n := r.inMemory(); n > 0 {
			t.Errorf("%d suspended messages are in memory", n)
		}
		r.suspend()
		time.Sleep(time.Minute)
		for _, id := range r.store.Messages() {
			r.ended(id, delivered)
		}
	})
}
