package spool_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// order lets an operator command and waits until it is done.
func (r *rig) order(id spool.ID, verb spool.Verb) string {
	r.t.Helper()
	command := r.store.Order(id, verb)
	time.Sleep(5 * time.Second)
	result := r.store.CommandResult(command)
	if result == "" {
		r.t.Fatalf("%s was not executed", verb)
	}
	return result
}

func (r *rig) ended(id spool.ID, want mailv1.RecipientState) {
	r.t.Helper()
	if got := r.states(id); len(got) == 0 || slices.ContainsFunc(got, func(s mailv1.RecipientState) bool { return s != want }) {
		r.t.Errorf("it ended as %v, want %v: %v", got, want, r.events(id))
	}
}

const cancelled = mailv1.RecipientState_RECIPIENT_STATE_CANCELLED

// Case J6: hold a message that waits, start anew, release it.
func TestHoldAndRelease(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
		id := r.accept(submission("ann@x.example", "bob@y.example"))
		time.Sleep(time.Second)
		r.order(id, spool.VerbHold)
		d.leave()
		r.stop()
		next := startRig(r.t, r.store, "b", nil)
		defer next.stop()
		next.fronts()
		d = next.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(time.Hour)
		if jobs := d.got(); len(jobs) > 0 {
			t.Fatalf("a held message was sent: %v", jobs)
		}
		next.order(id, spool.VerbRelease)
		next.ended(id, delivered)
	})
}

// A message that waits hours for its next attempt is tried at once.
func TestRetryNow(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.BackOff = []time.Duration{10 * time.Hour} }, func(r *rig) {
		r.fronts()
		first := r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
		id := r.accept(submission("ann@x.example"))
		time.Sleep(time.Minute)
		first.leave()
		r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		r.order(id, spool.VerbRetry)
		r.ended(id, delivered)
	})
}

// Cancelling wins over work in flight, unless that is past its permit: then it follows where the attempt fails.
func TestCancel(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		r.order(id, spool.VerbCancel)
		r.ended(id, cancelled)
		d.mu.Lock()
		_, told := d.cancels[string(job.Token)]
		d.mu.Unlock()
		if !told {
			t.Error("its worker was not told")
		}

		id = r.accept(submission("ann@x.example"))
		job = d.got()[1]
		d.worker.RequestPermit(job.Token)
		if granted, _ := d.permit(job.Token); !granted {
			t.Fatal("no permit")
		}
		if result := r.order(id, spool.VerbCancel); !strings.Contains(result, "1 are being sent") {
			t.Errorf("told %q", result)
		}
		if got := r.states(id); got != nil {
			t.Fatalf("it ended as %v while it was being sent", got)
		}
		d.worker.Result(job.Token, *attempt(job, mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
		r.ended(id, cancelled)

		id = r.accept(submission("ann@x.example"))
		r.order(id, spool.VerbCancel)
		if result := r.order(id, spool.VerbCancel); !strings.Contains(result, "ended") {
			t.Errorf("a second time: %q", result)
		}
	})
}

// Bouncing now notifies the sender, also where the owner dies in between.
func TestBounceNow(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		id := r.accept(submission("ann@x.example"))
		time.Sleep(time.Second)
		r.order(id, spool.VerbBounce)
		r.stop()
		next := startRig(r.t, r.store, "b", nil)
		defer next.stop()
		next.fronts()
		d := next.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(time.Minute)
		jobs := d.got()
		if len(jobs) == 0 || jobs[0].ID != id || jobs[0].Bounce == nil {
			t.Fatalf("jobs %v, want one that writes the notification", jobs)
		}
		next.ended(id, bounced)
		if len(next.store.Messages()) != 2 {
			t.Errorf("%d messages, want the notification beside it", len(next.store.Messages()))
		}
	})
}
