package spool

import (
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// What is put off leaves memory, however seldom the store is asked.
func TestParkedLeavesMemory(t *testing.T) {
	d := newDrive()
	d.core.cfg = judgedAfter()
	d.core.cfg.Tick = 10 * time.Second
	m, _ := d.toDeliver()
	d.core.park(m.deliveries[0])
	if d.core.active(m) {
		t.Error("it stays")
	}
}

// What is due before the store would be asked again stays in memory, and what was claimed early waits there for its time.
func TestSoonWaitsInMemory(t *testing.T) {
	soon := judgedAfter()
	soon.Jitter, soon.BackOff = 0, []time.Duration{2 * soon.Tick}
	d := newDrive()
	d.core.cfg = soon
	m, job := d.toDeliver()
	d.result(job, WorkResult{Failure: "disk"})
	w := d.rows[len(d.rows)-1]
	if w.last || len(w.Waits) != 1 || !w.Waits[0].Owned || d.core.messages[m.row.ID] == nil {
		t.Fatalf("it leaves memory: %v, by %+v", w.last, w.Waits)
	}
	d.awaits(t, w.Waits[0].NextAt)

	stored := &Stored{Message: m.row, Waits: w.Waits}
	stored.Waits[0].NextAt = d.now.Add(soon.lookAhead())
	stored.ID = d.core.mintID(d.now)
	stored.Waits[0].Message = stored.ID
	written := len(d.rows)
	d.apply(loaded{inc: 1, messages: []*Stored{stored}})
	if len(d.rows) != written || d.core.messages[stored.ID] == nil {
		t.Fatalf("it leaves memory again, by %+v", d.rows[written:])
	}
	d.awaits(t, stored.Waits[0].NextAt)
}

// awaits wants the next job at a time, and not before.
func (d *drive) awaits(t *testing.T, at time.Time) {
	t.Helper()
	sent := len(d.jobs)
	if next := d.core.nextTimer(); !next.Equal(at) {
		t.Errorf("the next tick is wanted at %s, not at %s", next, at)
	}
	for _, now := range []time.Time{at.Add(-time.Millisecond), at} {
		d.now = now
		d.apply(tick{})
		if due := now.Equal(at); due != (len(d.jobs) == sent+1) {
			t.Errorf("%d jobs came %s before it was due", len(d.jobs)-sent, at.Sub(now))
		}
	}
}

// full brings a drive to a destination whose new mail waits in the store: one job is out, and two are ready. A claim brings two.
func full(t *testing.T) (d *drive, out *Job) {
	t.Helper()
	cfg := judgedAfter()
	cfg.PerDestination, cfg.Messages = 1, 10
	d = newDriveWith(cfg)
	_, out = d.toDeliver()
	d.toDeliver()
	d.toDeliver()
	if !d.core.sched.diverts("x.example") {
		t.Fatal("new mail is not diverted")
	}
	return d, out
}

// deliverNext delivers a job and returns the one that comes after it.
func (d *drive) deliverNext(job *Job) *Job {
	d.result(job, WorkResult{Attempt: &mailv1.Attempt{Results: []*mailv1.RecipientResult{
		{Status: mailv1.ResultStatus_RESULT_STATUS_DELIVERED},
	}}})
	return d.last()
}

// waiting are two messages for a destination that wait in the store until a time.
func (d *drive) waiting(at time.Time) []*Stored {
	var list []*Stored
	for range 2 {
		id := d.core.mintID(d.now)
		list = append(list, &Stored{
			Message: Message{ID: id, Envelope: oneRecipient(), Accepted: d.now},
			Waits: []Wait{{
				WaitKey: WaitKey{Message: id, Destination: "x.example"}, Reason: WaitRetry, Recipients: []int32{0},
				NextAt: at, ExpiresAt: d.now.Add(time.Hour), Owned: true,
			}},
		})
	}
	return list
}

// What was claimed ahead of its time has its place: once it is due, it does not go back to the store, though new mail for its
// destination waits there.
func TestClaimedAheadKeepsItsPlace(t *testing.T) {
	d, job := full(t)
	at := d.now.Add(d.core.cfg.lookAhead())
	d.apply(loaded{inc: 1, messages: d.waiting(at), more: true})
	sent, written := len(d.jobs), len(d.rows)
	d.now = at
	d.apply(tick{})
	if len(d.rows) != written {
		t.Errorf("it goes back to the store: %+v", d.rows[written].Waits)
	}
	for range 4 {
		job = d.deliverNext(job)
	}
	if got := len(d.jobs) - sent; got != 4 {
		t.Errorf("%d jobs followed, want the two that were ready, and the two", got)
	}
}

// What was claimed ahead of its time says nothing of what waits in the store and is due: there is none, and new mail goes on.
func TestClaimedAheadDivertsNobody(t *testing.T) {
	d, job := full(t)
	d.deliverNext(d.deliverNext(job)) // one is out, and none is ready
	d.apply(loaded{inc: 1, messages: d.waiting(d.now.Add(d.core.cfg.lookAhead()))})
	if d.core.sched.diverts("x.example") {
		t.Error("new mail is diverted for what is not due")
	}
}

// Where the store's clock is ahead of what we know of it, what is claimed is not due for us. It waits here until we know better:
// given back, it would be claimed again at once, and again.
func TestClaimedByAClockAhead(t *testing.T) {
	d := newDrive()
	at := d.now.Add(time.Hour / 2)
	list := d.waiting(at)
	d.apply(loaded{inc: 1, messages: list[:1], more: true})
	if len(d.rows) > 0 {
		t.Fatalf("it is given back: %+v", d.rows[0])
	}
	d.awaits(t, at)
}
