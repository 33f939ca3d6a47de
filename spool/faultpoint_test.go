package spool_test

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// struck runs a test on a spool that faults strike, and audits the store at its end.
func struck(t *testing.T, text string, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		faults, err := fault.Parse(text, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		store := spooltest.NewStore()
		r := startFaulty(t, store, "a", nil, faults)
		defer r.stop()
		test(r)
		r.stop()
		if err := store.Audit(); err != nil {
			t.Errorf("promise P2: %v", err)
		}
	})
}

// Promise P1: what fails before the commit is answered with 4xx, and nothing of it is there.
func TestAcceptanceFails(t *testing.T) {
	for _, point := range []fault.Point{fault.AcceptReceived, fault.AcceptWriting} {
		t.Run(string(point), func(t *testing.T) {
			struck(t, string(point)+"=fail", func(r *rig) {
				refusal(t, <-r.submit(submission("a@x.example")), 451)
				if ids := r.store.Messages(); len(ids) > 0 {
					t.Errorf("it was refused, and %v is durable", ids)
				}
				time.Sleep(time.Second)
				r.accept(submission("a@x.example"))
			})
		})
	}
}

// Promise P4: an owner that wakes up behind its lease gives no permit, and the result that it gets does not count.
func TestOwnerSleepsPastItsLease(t *testing.T) {
	struck(t, "lease.renew=stall:60s", func(r *rig) {
		r.fronts()
		worker := r.join(spool.StageDeliver, "d", 10, nil)
		r.accept(submission("a@x.example"))
		job := worker.only()
		time.Sleep(15 * time.Second) // the lease is 10 s long, and its renewal hangs
		worker.worker.RequestPermit(job.Token)
		if granted, _ := worker.permit(job.Token); granted {
			t.Error("a permit was granted behind the end of the lease")
		}
		r.store.Fence(r.inc) // as an heir does
		worker.worker.Result(job.Token, *attempt(job, mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
		if slices.Contains(worker.ack(job.Token), spool.AckCounted) {
			t.Error("a result counts behind the end of the lease")
		}
	})
}

// Promise P3: between outcome and acknowledgement a result is presented again, and counts once.
func TestResultPresentedAgainBeforeItsAck(t *testing.T) {
	struck(t, "result.durable=stall:5s", func(r *rig) {
		r.fronts()
		worker := r.join(spool.StageDeliver, "d", 10, nil)
		id := r.accept(submission("a@x.example"))
		job := worker.only()
		worker.worker.RequestPermit(job.Token)
		if granted, _ := worker.permit(job.Token); !granted {
			t.Fatal("no permit")
		}
		for range 3 {
			worker.worker.Result(job.Token, *attempt(job, mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
			synctest.Wait()
		}
		if acks := worker.ack(job.Token); len(acks) > 0 {
			t.Fatalf("acknowledged before it is known to be durable: %v", acks)
		}
		time.Sleep(10 * time.Second)
		if acks := worker.ack(job.Token); !slices.Equal(acks, []spool.AckStatus{spool.AckCounted}) {
			t.Errorf("acknowledged as %v, want once", acks)
		}
		if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{mailv1.RecipientState_RECIPIENT_STATE_DELIVERED}) {
			t.Errorf("it ended as %v", got)
		}
	})
}

// Promise P4: an owner that sleeps, or dies, when it has claimed a message and before that is in its memory, has given nothing
// out. An heir sends the message, and what the sleeper holds when it wakes up does not count.
func TestOwnerSleepsBehindItsClaim(t *testing.T) {
	struck(t, "claim.durable=stall:60s", func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
		id := r.accept(submission("a@x.example"))
		for len(r.store.Owners(id)) == 0 || r.store.Owners(id)[0] != r.inc || len(d.got()) == 0 || r.held(id) {
			time.Sleep(100 * time.Millisecond) // until it is claimed for its second attempt
		}
		r.store.Fence(r.inc) // as an heir does
		heir := startRig(r.t, r.store, "b", nil)
		defer heir.stop()
		second := heir.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(2 * time.Minute) // past the sleep
		if jobs := second.got(); len(jobs) != 1 || jobs[0].ID != id {
			t.Errorf("the heir gave out %d jobs, want one", len(jobs))
		}
		if jobs := d.got(); len(jobs) != 1 {
			t.Errorf("the sleeper gave out %d jobs, want the first alone", len(jobs))
		}
		heir.ended(id, delivered)
		if events := heir.events(id); slices.Contains(events, "unknown") {
			t.Errorf("nothing is unknown about it: %v", events)
		}
	})
}

// held tells whether a spool has a message in its memory.
func (r *rig) held(id spool.ID) bool {
	_, there := r.spool.Live(id)
	return there
}

// Promise P2: a spool that stops can't hand over, or dies at it. Its messages are adopted when its lease ends; what had its
// permit by then is unknown (P3), and nothing else is sent twice.
func TestHandOverFails(t *testing.T) {
	struck(t, "handover=fail", func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		given, permitted := r.accept(submission("a@x.example")), r.accept(submission("b@x.example"))
		waits := r.accept(submission("c@x.example"))
		jobs := d.got()
		for _, job := range jobs {
			switch job.ID {
			case permitted:
				d.worker.RequestPermit(job.Token)
				if granted, _ := d.permit(job.Token); !granted {
					t.Fatal("no permit")
				}
			case waits:
				d.worker.RequestPermit(job.Token)
				d.permit(job.Token)
				d.worker.Result(job.Token, *attempt(job, mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
			}
		}
		r.stop()
		heir := startRig(r.t, r.store, "b", nil)
		defer heir.stop()
		heir.fronts() // what was found of a message that has no row yet is found again
		second := heir.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(5 * time.Minute)
		sent := map[spool.ID]int{}
		for _, job := range second.got() {
			sent[job.ID]++
		}
		for id, unknown := range map[spool.ID]bool{given: false, permitted: true, waits: false} {
			heir.ended(id, delivered)
			events := heir.events(id)
			if sent[id] != 1 || slices.Contains(events, "unknown") != unknown {
				t.Errorf("%s was sent %d times by the heir, want once: %v", id, sent[id], events)
			}
		}
	})
}

// A database that stands still for ten seconds: clients are told 451 in time or 250 once their mail is durable, and what was
// accepted is sent once, or again where that is told to be unknown, though the lease has run out meanwhile.
func TestStoreStandsStill(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		sent := map[spool.ID]int{}
		r.join(spool.StageDeliver, "d", 100, func(_ *sink, job *spool.Job) *spool.WorkResult { // it has its permit
			sent[job.ID]++
			return attempt(job, isDelivered)
		})
		r.accept(submission("a@x.example"))
		goesOn := time.Now().Add(10 * time.Second)
		stands := func() { time.Sleep(time.Until(goesOn)) }
		r.store.SetFaults(spooltest.Faults{
			Call:   func(string) error { stands(); return nil },
			Commit: func(spool.Incarnation, *spool.Batch) (bool, error) { stands(); return false, nil },
		})
		answers := map[spool.ID]chan answer{}
		for range 50 {
			sub := submission("a@x.example")
			sub.Deadline = time.Now().Add(12 * time.Second)
			answers[sub.ID] = r.submit(sub)
			time.Sleep(250 * time.Millisecond)
		}
		accepted := 0
		for id, c := range answers {
			a := <-c
			if a.err != nil {
				refusal(t, a, 451)
				continue
			}
			accepted++
			time.Sleep(time.Minute)
			r.ended(id, delivered)
		}
		if accepted == 0 { // whether any is refused depends on when the lease was last renewed before
			t.Errorf("none of %d was accepted", len(answers))
		}
		for id, n := range sent { // the worker presents no result a second time
			if events := r.events(id); n > 1+occurrences(events, "unknown") {
				t.Errorf("%s was sent %d times: %v", id, n, events)
			}
		}
	})
}

func occurrences(events []string, event string) int {
	n := 0
	for _, e := range events {
		if e == event {
			n++
		}
	}
	return n
}
