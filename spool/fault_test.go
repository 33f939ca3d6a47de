package spool_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// refusal wants a temporary refusal with a code.
func refusal(t *testing.T, a answer, code int32) {
	t.Helper()
	var reply *smtpreply.Error
	if !errors.As(a.err, &reply) || reply.Reply().GetCode() != code {
		t.Errorf("answer %v, want %d", a.err, code)
	}
}

// aboutMessage wants a temporary refusal for which a gateway asks no other spool, nor leaves this one.
func aboutMessage(t *testing.T, a answer) {
	t.Helper()
	refusal(t, a, 451)
	if code := smtpreply.From(a.err).Reply().GetEnhancedCode(); code != "4.6.0" {
		t.Errorf("the code is %s, want one that is about the message", code)
	}
}

// Whatever arrives while commits are in flight forms the next batch; there is no timer.
func TestGroupCommit(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.BatchRows = 100 }, func(r *rig) {
		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			time.Sleep(10 * time.Millisecond)
			return false, nil
		}})
		start := time.Now()
		r.accept(submission("ann@x.example"))
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("a lone message took %s, want one commit", took)
		}
		var answers []chan answer
		for range 250 {
			answers = append(answers, r.submit(submission("ann@x.example")))
		}
		for _, a := range answers {
			if got := <-a; got.err != nil {
				t.Fatal(got.err)
			}
		}
		batches := r.store.Batches()
		if len(batches) > 6 {
			t.Errorf("batches of %v rows for 250 messages", batches)
		}
		for _, n := range batches {
			if n > 100 {
				t.Errorf("a batch of %d rows", n)
			}
		}
	})
}

// Promise P1, case B1: a commit whose outcome is not known is no acceptance. It is withdrawn where it turns out durable.
func TestUnknownCommit(t *testing.T) {
	for name, c := range map[string]struct {
		applied  bool
		known    time.Duration // until then the outcome is not known
		accepted bool
		want     []mailv1.RecipientState
	}{
		"known in time, durable":     {true, 5 * time.Second, true, []mailv1.RecipientState{delivered}},
		"known in time, not durable": {false, 5 * time.Second, true, []mailv1.RecipientState{delivered}},
		"too late, durable":          {true, 60 * time.Second, false, []mailv1.RecipientState{withdrawn}},
		"too late, not durable":      {false, 60 * time.Second, false, []mailv1.RecipientState{withdrawn}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				r.fronts()
				d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
				first := true
				end := time.Now().Add(c.known)
				r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
					apply := first && c.applied
					first = false
					if time.Now().Before(end) {
						return apply, spool.ErrCommitUnknown
					}
					return false, nil
				}})
				sub := submission("ann@x.example")
				a := <-r.submit(sub)
				if c.accepted != (a.err == nil) {
					t.Fatalf("answer %v", a.err)
				}
				if !c.accepted {
					refusal(t, a, 451)
				}
				time.Sleep(time.Minute)
				if diff := cmp.Diff(c.want, r.states(sub.ID)); diff != "" {
					t.Error(diff)
				}
				if !c.accepted && len(d.got()) != 0 {
					t.Error("a refused message was sent")
				}
				if !c.accepted {
					refusal(t, <-r.submit(sub), 451) // case: the same id again must not be taken for accepted
				}
			})
		})
	}
}

func TestAbortWhileCommitting(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			time.Sleep(time.Second)
			return false, nil
		}})
		sub := submission("ann@x.example")
		c := r.submit(sub)
		synctest.Wait()
		r.spool.Abort(sub.ID)
		start := time.Now()
		refusal(t, <-c, 451)
		if time.Since(start) != 0 {
			t.Error("the answer waits for the commit")
		}
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff([]mailv1.RecipientState{withdrawn}, r.states(sub.ID)); diff != "" {
			t.Error(diff)
		}
		if len(d.got()) != 0 {
			t.Error("a withdrawn message was sent")
		}
	})
}

// Case A1 and C8: while the store is away clients get 451 at once; everything comes back by itself.
func TestStoreAwayAndBack(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		away := errors.New("connection refused")
		r.store.SetFaults(spooltest.Faults{Call: func(string) error { return errors.Join(spool.ErrUnavailable, away) }})
		d.worker.RequestPermit(job.Token)
		refusal(t, <-r.submit(submission("ann@x.example")), 451)
		start := time.Now()
		refusal(t, <-r.submit(submission("ann@x.example")), 451)
		if time.Since(start) != 0 || r.spool.Ready() {
			t.Errorf("refused after %s, ready %v", time.Since(start), r.spool.Ready())
		}
		time.Sleep(3 * time.Second)
		if _, answered := d.permit(job.Token); answered {
			t.Error("a permit was answered that is not durable")
		}
		r.store.SetFaults(spooltest.Faults{})
		time.Sleep(6 * time.Second)
		if granted, _ := d.permit(job.Token); !granted || !r.spool.Ready() {
			t.Errorf("permit %v, ready %v", granted, r.spool.Ready())
		}
		d.worker.Result(job.Token, *attempt(job, isDelivered))
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(id)); diff != "" {
			t.Error(diff)
		}
		r.accept(submission("ann@x.example"))
	})
}

// A lease that can't be renewed ends the incarnation: jobs are cancelled, permits refused, and a new one starts when the
// store is back.
func TestLeaseLost(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		r.store.SetFaults(spooltest.Faults{Call: func(string) error { return spool.ErrUnavailable }})
		time.Sleep(9500 * time.Millisecond)
		d.worker.RequestPermit(job.Token)
		if granted, _ := d.permit(job.Token); granted {
			t.Error("a permit after the lease")
		}
		d.mu.Lock()
		cancelled := d.cancels[string(job.Token)] != ""
		d.mu.Unlock()
		if !cancelled {
			t.Error("the job is not cancelled")
		}
		if _, ok := r.spool.Hello(); ok {
			t.Error("a hello without incarnation")
		}
		r.store.SetFaults(spooltest.Faults{})
		time.Sleep(3 * time.Second)
		hello, ok := r.spool.Hello()
		if !ok || hello.Incarnation == r.inc {
			t.Fatalf("hello %+v, %v", hello, ok)
		}
		jobs := d.got()
		if len(jobs) != 2 || jobs[1].ID != id {
			t.Fatalf("%d jobs, want it given out anew", len(jobs))
		}
		d.worker.RequestPermit(jobs[1].Token)
		synctest.Wait()
		d.worker.Result(job.Token, *attempt(job, isDelivered)) // never permitted
		d.worker.Result(jobs[1].Token, *attempt(jobs[1], isDelivered))
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(id)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]spool.AckStatus{spool.AckStale}, d.ack(job.Token)); diff != "" {
			t.Error(diff)
		}
	})
}

// Case B7 over incarnations: a permitted job's result counts when the worker presents it to the new owner.
func TestResultAfterFencing(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		d.worker.RequestPermit(job.Token)
		if granted, _ := d.permit(job.Token); !granted {
			t.Fatal("no permit")
		}
		r.store.Fence(r.inc)
		time.Sleep(5 * time.Second)
		if n := len(d.got()); n != 1 {
			t.Fatalf("%d jobs: a permitted one was given out again", n)
		}
		d.worker.Result(job.Token, *attempt(job, isDelivered))
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(id)); diff != "" {
			t.Error(diff)
		}
		if acks := d.ack(job.Token); len(acks) != 1 || acks[0] != spool.AckCounted {
			t.Errorf("acks %v", acks)
		}
	})
}

// A row that the database refuses hurts only its message (case C6), and a full disk is 452 (case A5).
func TestBadRowsAndFullDisk(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		var bad atomic.Pointer[spool.ID]
		var named atomic.Bool
		r.store.SetFaults(spooltest.Faults{Commit: func(_ spool.Incarnation, b *spool.Batch) (bool, error) {
			for _, m := range b.Messages {
				if m.ID == *bad.Load() {
					row := &spool.RowError{Err: errors.New("invalid byte sequence")}
					if named.Load() {
						row.Message = m.ID
					}
					return false, row
				}
			}
			time.Sleep(time.Millisecond)
			return false, nil
		}})
		for _, name := range []bool{true, false} {
			named.Store(name)
			wrong := submission("ann@x.example")
			bad.Store(&wrong.ID)
			var answers []chan answer
			for range 5 {
				answers = append(answers, r.submit(submission("ann@x.example")))
			}
			refused := r.submit(wrong)
			for range 5 {
				answers = append(answers, r.submit(submission("ann@x.example")))
			}
			for _, a := range answers {
				if got := <-a; got.err != nil {
					t.Errorf("named %v: %v", name, got.err)
				}
			}
			aboutMessage(t, <-refused)
		}
		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			return false, spool.ErrFull
		}})
		refusal(t, <-r.submit(submission("ann@x.example")), 452)
	})
}

func TestSubmittedTwice(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		sub := submission("ann@x.example")
		first, second := r.submit(sub), r.submit(sub)
		for _, c := range []chan answer{first, second, r.submit(sub)} {
			if a := <-c; a.err != nil {
				t.Error(a.err)
			}
		}
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(sub.ID)); diff != "" {
			t.Fatal(diff)
		}
		r.accept(sub) // it has ended in the meantime
		if n := len(d.got()); n != 1 {
			t.Errorf("sent %d times", n)
		}
		again := sub
		again.ID = newID()
		if a := <-r.submit(again); a.receipt.SuspectedDuplicateOf != sub.ID {
			t.Errorf("receipt %+v, want a suspected duplicate of %s", a.receipt, sub.ID)
		}
	})
}

func TestIDOutsideTheWindow(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		sub := submission("ann@x.example")
		time.Sleep(3 * time.Hour)
		sub.Deadline = time.Now().Add(time.Minute)
		aboutMessage(t, <-r.submit(sub))
	})
}

// Past the bound of memory messages wait in the store and are loaded in order.
func TestMemoryBound(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.Messages = 5 }, func(r *rig) {
		var ids []spool.ID
		for range 20 {
			ids = append(ids, r.accept(submission("ann@x.example")))
			time.Sleep(time.Millisecond)
		}
		held := 0
		for _, id := range ids {
			if _, live := r.spool.Live(id); live {
				held++
			}
		}
		if held > 6 {
			t.Errorf("%d messages in memory", held)
		}
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 1, deliver(isDelivered))
		time.Sleep(5 * time.Second)
		jobs := d.got()
		if len(jobs) != len(ids) {
			t.Fatalf("%d of %d sent", len(jobs), len(ids))
		}
		for i, job := range jobs {
			if job.ID != ids[i] {
				t.Errorf("message %d is out of order", i)
			}
		}
	})
}

// What messages take beside their content counts as well: many small ones fill the memory as few large ones do.
func TestMemoryCountsMoreThanContent(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.Memory = bytesize.MiB }, func(r *rig) {
		var ids []spool.ID
		for range 500 {
			ids = append(ids, r.accept(submission("ann@x.example")))
		}
		time.Sleep(time.Minute)
		held := 0
		for _, id := range ids {
			if _, live := r.spool.Live(id); live {
				held++
			}
		}
		if held < 100 || held > 300 {
			t.Errorf("%d small messages in 1 MiB", held)
		}
	})
}

// Past the configured backlog clients are told 452, and what was accepted goes on (P6).
func TestFullStore(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.MaxWaiting = 2 }, func(r *rig) {
		r.fronts()
		temporary := r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_TEMPORARY))
		var ids []spool.ID
		for range 3 {
			ids = append(ids, r.accept(submission("ann@x.example")))
		}
		time.Sleep(20 * time.Second)
		refusal(t, <-r.submit(submission("ann@x.example")), 452)
		temporary.leave()
		r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		time.Sleep(2 * time.Minute)
		for _, id := range ids {
			if r.states(id) == nil {
				t.Errorf("%s did not end while the store was full", id)
			}
		}
		r.accept(submission("ann@x.example"))
	})
}

// Promise P3: what was submitted before and may be durable is answered though there is no room for anything new.
func TestSubmittedAgainWithoutRoom(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.MaxWaiting, c.Backlog = 1, bytesize.MiB }, func(r *rig) {
		r.fronts()
		r.join(spool.StageDeliver, "d", 10, deliver(isTemporary))
		sub := submission("ann@x.example")
		r.accept(sub)
		r.accept(submission("ann@x.example"))
		time.Sleep(20 * time.Second)
		refusal(t, <-r.submit(submission("ann@x.example")), 452)

		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			time.Sleep(time.Second)
			return false, nil
		}})
		var pending []chan answer
		for range 16 {
			other := submission("ann@x.example")
			other.Content, other.Again = make([]byte, 64<<10), true
			pending = append(pending, r.submit(other))
		}
		sub.Again = true
		if a := <-r.submit(sub); a.err != nil {
			t.Errorf("it is durable, and refused: %v", a.err)
		}
		for _, c := range pending {
			if a := <-c; a.err != nil {
				t.Errorf("it may be durable, and is refused: %v", a.err)
			}
		}
	})
}

// A batch that is committed again since its outcome was not known may hold a row that is another's by now. That is an
// answer: it must not be asked for ever, and the rest of the batch goes on.
func TestRefusedAfterUnknown(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.CommitsInFlight = 1 }, func(r *rig) {
		foreign := submission("ann@x.example")
		tries := 0
		r.store.SetFaults(spooltest.Faults{Commit: func(_ spool.Incarnation, b *spool.Batch) (bool, error) {
			tries++
			switch {
			case tries == 1:
				time.Sleep(10 * time.Millisecond) // the two below form one batch
			case tries == 2:
				return false, spool.ErrCommitUnknown
			case slices.ContainsFunc(b.Messages, func(m spool.Message) bool { return m.ID == foreign.ID }):
				return false, &spool.RowError{Message: foreign.ID, Err: spool.ErrExists}
			}
			return false, nil
		}})
		first, other := submission("ann@x.example"), submission("ann@x.example")
		a := r.submit(first)
		synctest.Wait()
		b, c := r.submit(foreign), r.submit(other)
		for _, answer := range []chan answer{a, c} {
			if got := <-answer; got.err != nil {
				t.Errorf("a good message of the batch: %v", got.err)
			}
		}
		refusal(t, <-b, 451) // by its deadline: nobody gives it to us
	})
}

// What people search for survives an outage of the store.
func TestSearchColumnsAreKept(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.join(spool.StageFilter, "f", 10, judge(mailv1.Action_ACTION_ACCEPT))
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		id := r.accept(submission("ann@x.example"))
		away := true
		searched := false
		r.store.SetFaults(spooltest.Faults{Commit: func(_ spool.Incarnation, b *spool.Batch) (bool, error) {
			if away && len(b.Searches) > 0 {
				away = false
				return false, spool.ErrUnavailable
			}
			searched = searched || len(b.Searches) > 0
			return false, nil
		}})
		r.join(spool.StageParser, "p", 10, parse)
		time.Sleep(10 * time.Second)
		if len(d.got()) != 1 || r.states(id) == nil || away || !searched {
			t.Errorf("sent %d, ended %v, store was away %v, searchable %v", len(d.got()), r.states(id), !away, searched)
		}
	})
}
