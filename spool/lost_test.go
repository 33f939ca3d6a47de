package spool_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// alone brings a message to run alone: a parser's stream breaks while it holds it.
func (r *rig) alone() spool.ID {
	r.t.Helper()
	first := r.join(spool.StageParser, "p", 10, nil)
	id := r.accept(submission("ann@x.example"))
	first.only()
	first.leave()
	return id
}

// Promise P5, turned round: a worker that comes back did not die of its job. The network may break as often as it likes.
func TestBrokenStreamIsNoDeath(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.join(spool.StageFilter, "f", 100, judge(mailv1.Action_ACTION_ACCEPT))
		r.join(spool.StageDeliver, "d", 100, deliver(isDelivered))
		id := r.alone()
		worker := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
		worker.only()
		worker.leave()
		time.Sleep(time.Second)
		r.joinAs(spool.StageParser, "p", "start 1", 10, parse)
		time.Sleep(time.Minute)
		if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{delivered}) {
			t.Errorf("it ended as %v: %v", got, r.events(id))
		}
	})
}

// A worker that comes back presents the result that it held.
func TestReturnedWorkerPresents(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		id := r.alone()
		worker := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
		job := worker.only()
		worker.leave()
		time.Sleep(time.Second)
		back := r.joinAs(spool.StageParser, "p", "start 1", 0, nil)
		back.worker.Result(job.Token, *parse(back, job))
		if acks := back.ack(job.Token); !slices.Equal(acks, []spool.AckStatus{spool.AckCounted}) {
			t.Errorf("acknowledged as %v", acks)
		}
		r.join(spool.StageFilter, "f", 100, judge(mailv1.Action_ACTION_ACCEPT))
		r.join(spool.StageDeliver, "d", 100, deliver(isDelivered))
		time.Sleep(time.Minute)
		if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{delivered}) {
			t.Errorf("it ended as %v: %v", got, r.events(id))
		}
	})
}

// Promise P5: another start of the worker is none that came back.
func TestDeadWorkerDoesNotReturn(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		id := r.alone()
		worker := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
		worker.only()
		worker.leave()
		next := r.joinAs(spool.StageParser, "p", "start 2", 10, parse)
		time.Sleep(time.Second)
		if jobs := next.got(); len(jobs) > 0 {
			t.Errorf("it was given out again before it was known whether the worker died")
		}
		time.Sleep(time.Minute)
		if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{quarantined}) {
			t.Errorf("it ended as %v: %v", got, r.events(id))
		}
	})
}

// A job whose result breaks each stream that carries it fails a few times, and the message goes on without.
func TestJobBreaksEachStream(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.join(spool.StageFilter, "f", 100, judge(mailv1.Action_ACTION_ACCEPT))
		r.join(spool.StageDeliver, "d", 100, deliver(isDelivered))
		id := r.alone()
		given := 0
		for range 20 {
			worker := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
			time.Sleep(10 * time.Second)
			given += len(worker.got())
			worker.leave()
			time.Sleep(time.Second)
		}
		if tries := spool.DefaultConfig().JobTries; given != tries {
			t.Errorf("it was given out %d times, want %d", given, tries)
		}
		if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{delivered}) {
			t.Errorf("it ended as %v: %v", got, r.events(id))
		}
	})
}

// What a worker had when its stream broke runs alone only until that worker is back.
func TestReturnClearsTheSuspects(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		worker := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
		for range 5 {
			r.accept(submission("ann@x.example"))
		}
		if n := len(worker.got()); n != 5 {
			t.Fatalf("%d jobs", n)
		}
		worker.leave()
		synctest.Wait()
		if n := len(r.joinAs(spool.StageParser, "p", "start 1", 10, nil).got()); n != 5 {
			t.Errorf("%d jobs at once after it came back, want all 5", n)
		}
	})
}

// Notifications that no worker can write are tried a few times, each time later, even by other owners; then the journal
// says that nobody was told.
func TestBounceFailsForEver(t *testing.T) {
	for name, fail := range map[string]func(*sink, *spool.Job) *spool.WorkResult{
		"it fails":   func(*sink, *spool.Job) *spool.WorkResult { return &spool.WorkResult{Failure: "no"} },
		"it is lost": func(s *sink, _ *spool.Job) *spool.WorkResult { s.worker.Leave(); return nil },
		"it hangs":   func(*sink, *spool.Job) *spool.WorkResult { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, unhurried, func(r *rig) {
				r.fronts()
				id := r.accept(submission("ann@x.example"))
				time.Sleep(spool.DefaultConfig().MaxAge + time.Hour)
				given := 0
				for range 60 {
					worker := r.join(spool.StageDeliver, "d", 1, fail)
					time.Sleep(10 * time.Minute)
					for _, job := range worker.got() {
						if job.Bounce == nil {
							t.Fatal("a delivery was tried behind the message's age")
						}
						given++
					}
					worker.leave()
				}
				if tries := spool.DefaultConfig().JobTries; given != tries {
					t.Errorf("it was given out %d times, want %d", given, tries)
				}
				if got := r.states(id); !slices.Equal(got, []mailv1.RecipientState{mailv1.RecipientState_RECIPIENT_STATE_EXPIRED}) {
					t.Errorf("it ended as %v: %v", got, r.events(id))
				}
			})
		})
	}
}
