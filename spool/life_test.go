package spool_test

import (
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

const (
	delivered   = mailv1.RecipientState_RECIPIENT_STATE_DELIVERED
	bounced     = mailv1.RecipientState_RECIPIENT_STATE_BOUNCED
	expired     = mailv1.RecipientState_RECIPIENT_STATE_EXPIRED
	discarded   = mailv1.RecipientState_RECIPIENT_STATE_DISCARDED
	quarantined = mailv1.RecipientState_RECIPIENT_STATE_QUARANTINED
	withdrawn   = mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN

	isDelivered = mailv1.ResultStatus_RESULT_STATUS_DELIVERED
	isTemporary = mailv1.ResultStatus_RESULT_STATUS_TEMPORARY
	isPermanent = mailv1.ResultStatus_RESULT_STATUS_PERMANENT
)

func TestDelivered(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
		id := r.accept(submission("ann@X.example", "bob@x.example", "eve@y.example"))
		if diff := cmp.Diff([]mailv1.RecipientState{delivered, delivered, delivered}, r.states(id)); diff != "" {
			t.Fatal(diff)
		}
		if n := len(d.got()); n != 2 {
			t.Errorf("%d deliver jobs, want one by destination", n)
		}
		want := "accepted parsed filtered permitted permitted delivered delivered"
		if got := strings.Join(r.events(id), " "); got != want {
			t.Errorf("journal %q, want %q", got, want)
		}
		verdicts := 0
		for _, a := range r.store.Attempts(id) {
			if a.Verdict != nil {
				verdicts++
			}
		}
		if verdicts != 1 {
			t.Errorf("the verdict stands in %d rows, want 1", verdicts)
		}
		for _, job := range d.got() {
			if diff := cmp.Diff([]spool.AckStatus{spool.AckCounted}, d.ack(job.Token)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		action mailv1.Action
		wait   string
		want   []mailv1.RecipientState // nil: it waits
		later  []mailv1.RecipientState // after a week
	}{
		"reject holds": {mailv1.Action_ACTION_REJECT, spool.DestinationHold, nil, []mailv1.RecipientState{expired}},
		"hold":         {mailv1.Action_ACTION_HOLD, spool.DestinationHold, nil, []mailv1.RecipientState{expired}},
		"defer":        {mailv1.Action_ACTION_DEFER, spool.DestinationFilter, nil, []mailv1.RecipientState{expired}},
		"discard":      {mailv1.Action_ACTION_DISCARD, "", []mailv1.RecipientState{discarded}, []mailv1.RecipientState{discarded}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, unhurried, func(r *rig) {
				r.join(spool.StageParser, "p", 100, parse)
				r.join(spool.StageFilter, "f", 100, judge(c.action))
				bounces := r.join(spool.StageDeliver, "d", 100, deliver(isDelivered))
				id := r.accept(submission("ann@x.example"))
				if diff := cmp.Diff(c.want, r.states(id)); diff != "" {
					t.Fatal(diff)
				}
				if c.wait != "" {
					waits := r.store.Waits(id)
					if len(waits) != 1 || waits[0].Destination != c.wait || waits[0].Owned {
						t.Errorf("waits %v, want one at %s without owner", waits, c.wait)
					}
					if r.store.Attempts(id)[0].Verdict == nil {
						t.Error("the verdict is not durable")
					}
				}
				time.Sleep(7*24*time.Hour + time.Minute)
				if diff := cmp.Diff(c.later, r.states(id)); diff != "" {
					t.Error(diff)
				}
				if c.action != mailv1.Action_ACTION_DEFER && len(bounces.got()) != 0 {
					t.Error("a notification was asked for")
				}
			})
		})
	}
}

// Case F1: a bounce of a bounce is never made.
func TestBounce(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		r.join(spool.StageDeliver, "d", 10, deliver(isPermanent))
		id := r.accept(submission("ann@x.example"))
		if diff := cmp.Diff([]mailv1.RecipientState{bounced}, r.states(id)); diff != "" {
			t.Fatal(diff)
		}
		ids := r.store.Messages()
		if len(ids) != 2 {
			t.Fatalf("%d messages, want the message and its notification", len(ids))
		}
		dsn := ids[0]
		if dsn == id {
			dsn = ids[1]
		}
		m, _ := r.store.Message(dsn)
		if m.Envelope.GetSender() != "" || m.Envelope.GetRecipients()[0].GetAddress() != "sender@source.example" {
			t.Errorf("notification's envelope is %v", m.Envelope)
		}
		if diff := cmp.Diff([]mailv1.RecipientState{bounced}, r.states(dsn)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRetryThenExpire(t *testing.T) {
	bubble(t, unhurried, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, deliver(isTemporary))
		id := r.accept(submission("ann@x.example"))
		synctest.Wait()
		waits := r.store.Waits(id)
		if len(waits) != 1 || waits[0].Reason != spool.WaitRetry || waits[0].Attempts != 1 || waits[0].Owned {
			t.Fatalf("waits %+v", waits)
		}
		if wait := time.Until(waits[0].NextAt); wait != time.Minute {
			t.Errorf("next attempt in %s, want the first back-off", wait)
		}
		if _, live := r.spool.Live(id); live {
			t.Error("a deferred message stays in memory")
		}
		time.Sleep(5*24*time.Hour + time.Minute)
		if diff := cmp.Diff([]mailv1.RecipientState{expired}, r.states(id)); diff != "" {
			t.Fatal(diff)
		}
		jobs := d.got()
		for i, job := range jobs {
			if job.ID != id {
				continue
			}
			if last := job.Bounce != nil; last {
				if got := job.Bounce[0].GetReply().GetText(); got != "later" {
					t.Errorf("bounce for %q, want the last reply", got)
				}
			} else if int(job.Attempt) != i+1 {
				t.Errorf("job %d is attempt %d", i, job.Attempt)
			}
		}
		if len(r.store.Messages()) != 2 {
			t.Error("no notification")
		}
	})
}

// Case A2's kind: one recipient delivered, one bounced, one deferred, each by itself.
func TestPartialSuccess(t *testing.T) {
	bubble(t, unhurried, func(r *rig) {
		r.fronts()
		by := map[string]mailv1.ResultStatus{
			"x.example": isDelivered, "y.example": isPermanent, "z.example": isTemporary, "source.example": isDelivered,
		}
		r.join(spool.StageDeliver, "d", 10, func(_ *sink, job *spool.Job) *spool.WorkResult {
			return attempt(job, by[job.Destination])
		})
		id := r.accept(submission("ann@x.example", "ann@y.example", "ann@z.example"))
		synctest.Wait()
		var ended []spool.RecipientEnd
		for _, a := range r.store.Attempts(id) {
			ended = append(ended, a.Ended...)
		}
		if len(ended) != 2 {
			t.Errorf("ended %+v, want two", ended)
		}
		if waits := r.store.Waits(id); len(waits) != 1 || waits[0].Destination != "z.example" {
			t.Errorf("waits %+v", waits)
		}
		time.Sleep(5*24*time.Hour + time.Minute)
		if diff := cmp.Diff([]mailv1.RecipientState{delivered, bounced, expired}, r.states(id)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLargeContentGoesByUpload(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		sub, piece := r.upload(50)
		r.accept(sub)
		if got := r.store.Content(sub.ID); string(got) != strings.Repeat(string(piece), 50) {
			t.Errorf("content of %d octets differs", len(got))
		}
		p := r.join(spool.StageParser, "p", 1, nil)
		job := p.only()
		if job.Content != nil || job.Size != sub.Upload.Size() {
			t.Errorf("job with %d octets inline, size %d", len(job.Content), job.Size)
		}
		var b strings.Builder
		if err := r.spool.ReadContent(r.t.Context(), job.Token, 5, 3, into(&b)); err != nil || b.String() != "567" {
			t.Errorf("ReadContent: %q, %v", b.String(), err)
		}
		if err := r.spool.ReadContent(r.t.Context(), job.Token, job.Size+1, 0, into(&b)); !errors.Is(err, spool.ErrPastEnd) {
			t.Errorf("behind the end: %v", err)
		}
		if err := r.spool.ReadContent(r.t.Context(), []byte("x"), 0, 0, into(&b)); err == nil {
			t.Error("anyone may read")
		}
	})
}

// into takes content.
func into(w io.Writer) func([]byte) error {
	return func(piece []byte) error {
		_, err := w.Write(piece)
		return err
	}
}

// upload begins a message of n pieces of 64 KiB, which is not submitted yet.
func (r *rig) upload(n int) (sub spool.Submission, piece []byte) {
	r.t.Helper()
	sub = submission("ann@x.example")
	sub.Content = nil
	up, err := r.spool.NewUpload(r.t.Context(), sub.ID, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	piece = []byte(strings.Repeat("0123456789abcde\n", 4096))
	for range n {
		if err := up.Write(r.t.Context(), piece); err != nil {
			r.t.Fatal(err)
		}
	}
	sub.Upload = up
	return sub, piece
}

// countReads counts from now on how often content is read from the store.
func (r *rig) countReads() *atomic.Int32 {
	reads := new(atomic.Int32)
	r.store.SetFaults(spooltest.Faults{Call: func(method string) error {
		if method == "ReadContent" {
			reads.Add(1)
		}
		return nil
	}})
	return reads
}

// What came in lately is read from memory; what has left it, from the store.
func TestLateContentComesFromMemory(t *testing.T) {
	small := func(cfg *spool.Config) { cfg.Memory = 2 * bytesize.MiB } // a quarter: two chunks
	for pieces, fromStore := range map[int]bool{7: false, 20: true} {
		bubble(t, small, func(r *rig) {
			sub, piece := r.upload(pieces)
			r.accept(sub)
			reads := r.countReads()
			p := r.join(spool.StageParser, "p", 1, nil)
			job := p.only()
			for _, part := range []struct{ offset, length int64 }{{0, 0}, {5, 3}, {1, math.MaxInt64}, {300 << 10, 100 << 10}, {job.Size, 0}} {
				want := strings.Repeat(string(piece), pieces)[part.offset:]
				if part.length > 0 {
					want = want[:min(part.length, int64(len(want)))]
				}
				var b strings.Builder
				if err := r.spool.ReadContent(r.t.Context(), job.Token, part.offset, part.length, into(&b)); err != nil || b.String() != want {
					t.Errorf("%d octets from %d of %d pieces: %d octets came that differ, or %v", part.length, part.offset, pieces, b.Len(), err)
				}
			}
			if got := reads.Load() > 0; got != fromStore {
				t.Errorf("%d pieces: read from the store %d times", pieces, reads.Load())
			}
		})
	}
}

// Who delivers a message has read it last: others have its room from then on.
func TestLateContentLeavesWithItsDelivery(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		sub, piece := r.upload(7)
		r.accept(sub)
		reads := r.countReads()
		for _, want := range []struct {
			stage     spool.Stage
			fromStore int32
		}{{spool.StageParser, 0}, {spool.StageFilter, 0}, {spool.StageDeliver, 1}} {
			w := r.join(want.stage, want.stage.String(), 1, nil)
			job := w.only()
			for range 2 {
				var b strings.Builder
				if err := r.spool.ReadContent(r.t.Context(), job.Token, 0, 0, into(&b)); err != nil || b.String() != strings.Repeat(string(piece), 7) {
					t.Errorf("%s: %d octets came that differ, or %v", want.stage, b.Len(), err)
				}
			}
			if got := reads.Load(); got != want.fromStore {
				t.Errorf("%s: read from the store %d times, want %d", want.stage, got, want.fromStore)
			}
			switch want.stage {
			case spool.StageParser:
				w.worker.Result(job.Token, *parse(w, job))
			case spool.StageFilter:
				w.worker.Result(job.Token, *judge(mailv1.Action_ACTION_ACCEPT)(w, job))
			}
		}
	})
}

// A message whose sender wants it later is parsed and filtered at once, and sent then; its age counts from there. Nobody can
// keep it longer than a hold.
func TestDelayedRelease(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct{ asked, sent time.Duration }{
		"tomorrow":  {day, day},
		"next year": {365 * day, spool.DefaultConfig().HoldMaxAge},
		"yesterday": {-day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, unhurried, func(r *rig) {
				r.fronts()
				d := r.join(spool.StageDeliver, "d", 10, deliver(isDelivered))
				sub := submission("ann@x.example")
				sub.Envelope.ReleaseAt = timestamppb.New(time.Now().Add(c.asked))
				start := time.Now()
				id := r.accept(sub)
				for len(d.got()) == 0 {
					if time.Since(start) > c.sent+day {
						t.Fatal("it was not sent")
					}
					time.Sleep(time.Minute)
				}
				if at := time.Since(start); at < c.sent || at > c.sent+time.Hour {
					t.Errorf("sent after %s, want %s", at, c.sent)
				}
				time.Sleep(time.Minute)
				r.ended(id, delivered)
			})
		})
	}
}
