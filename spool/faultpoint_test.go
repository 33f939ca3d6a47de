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
