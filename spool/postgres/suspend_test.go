package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func suspension(text string) spool.Suspension {
	return spool.Suspension{Pattern: pattern.MustParse(text), Reason: "migration", By: "ann"}
}

func (f *fixture) suspend(text string, length time.Duration) spool.Suspension {
	f.Helper()
	got, err := f.store.Suspend(f.Context(), suspension(text), length)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

func (f *fixture) resume(text string) {
	f.Helper()
	if err := f.store.Resume(f.Context(), pattern.MustParse(text)); err != nil {
		f.Fatal(err)
	}
}

// suspended lists what is suspended.
func (f *fixture) suspended() []string {
	f.Helper()
	list, err := f.store.Suspensions(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var patterns []string
	for i := range list {
		patterns = append(patterns, list[i].Pattern.String())
	}
	return patterns
}

func TestSuspensions(t *testing.T) {
	f := newFixture(t)
	first := f.suspend("*.B.example", 0)
	if !first.Until.IsZero() || first.Since.IsZero() {
		t.Errorf("without length: %+v", first)
	}
	if again := f.suspend("*.b.example", time.Hour); again.Until.Sub(again.Since).Round(time.Minute) != time.Hour {
		t.Errorf("for an hour: %+v", again)
	}
	f.suspend("short.example", time.Millisecond)
	f.suspend("*", 0)
	f.await("it does not end", func() bool { return slices.Equal(f.suspended(), []string{"*", "*.b.example"}) })
	list, err := f.store.Suspensions(t.Context())
	if err != nil || len(list) != 2 || list[1].Reason != "migration" || list[1].By != "ann" || list[1].Until.IsZero() {
		t.Errorf("got %+v, %v", list, err)
	}
	f.resume("*")
	for _, gone := range []string{"*", "short.example", "b.example"} {
		if err := f.store.Resume(t.Context(), pattern.MustParse(gone)); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("%s is resumed with %v", gone, err)
		}
	}
	f.sql(`INSERT INTO suspension (pattern, reason, by_whom) SELECT 'd' || n || '.example', '', '' FROM generate_series(2, $1) AS n`,
		spool.MaxSuspensions)
	if _, err := f.store.Suspend(t.Context(), suspension("one.more.example"), 0); !errors.Is(err, spool.ErrFull) {
		t.Errorf("one more than there may be: %v", err)
	}
	f.suspend("*.b.example", 0) // which is there
	f.sql("UPDATE suspension SET until_at = now() - interval '31 days' WHERE pattern LIKE 'd%'")
	if err := f.store.Maintain(t.Context(), f.register("a")); err != nil {
		t.Fatal(err)
	}
	if got := f.sql("SELECT pattern FROM suspension ORDER BY pattern"); !slices.Equal(got, []string{"*.b.example", "short.example"}) {
		t.Errorf("%v are kept", got)
	}
}

// What is claimed is what the patterns do not name, and whatever is of no destination, or whose time is up.
func TestClaimLeavesSuspended(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	batch := &spool.Batch{}
	want := map[string]bool{}
	add := func(destination string, claimed bool, change func(*spool.Wait)) {
		m := message(t, destination, "rcpt@"+destination)
		w := wait(m.ID, destination, false, 0)
		if change != nil {
			change(&w)
		}
		batch.Messages, batch.Waits = append(batch.Messages, m), append(batch.Waits, w)
		want[m.ID.String()] = claimed
	}
	patterns := []pattern.Pattern{pattern.MustParse("X.example"), pattern.MustParse("*.a_b.example"), pattern.MustParse("ann@y.example")}
	for _, d := range []string{"x.example", "sub.a_b.example", "deep.sub.a_b.example"} {
		add(d, false, nil)
		add(d, true, func(w *spool.Wait) { w.ExpiresAt = w.NextAt })
	}
	for _, d := range []string{"y.example", "sub.x.example", "ax.example", "a_b.example", "sub.acb.example"} {
		add(d, true, nil)
	}
	add(spool.DestinationAll, true, func(w *spool.Wait) { w.Reason, w.Recipients = spool.WaitAll, nil })
	f.commit(inc, batch)
	for _, all := range []bool{false, true} {
		if all { // then two are left, and each is hidden by its pattern
			patterns = []pattern.Pattern{pattern.MustParse("*")}
			add("z.example", false, nil)
			add(spool.DestinationAll, true, func(w *spool.Wait) { w.Reason, w.Recipients = spool.WaitAll, nil })
			f.commit(inc, &spool.Batch{Messages: batch.Messages[len(batch.Messages)-2:], Waits: batch.Waits[len(batch.Waits)-2:]})
		}
		got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 100, PerDestination: 10, Suspended: patterns})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			if !want[m.ID.String()] {
				t.Errorf("%s was claimed", m.Envelope.GetRecipients()[0].GetAddress())
			}
			delete(want, m.ID.String())
		}
		for i := range batch.Messages {
			if m := &batch.Messages[i]; want[m.ID.String()] {
				t.Errorf("%s was not claimed", m.Envelope.GetRecipients()[0].GetAddress())
			}
		}
	}
}

// What is suspended hides nothing else, however much of it waits (P6).
func TestSuspendedHideNothing(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	f.deferMany(inc, "sub.b.example", *deadMessages)
	old, other := message(t, "old", "rcpt@sub.b.example"), message(t, "other", "rcpt@zz.example")
	expired := wait(old.ID, "sub.b.example", false, 0)
	expired.ExpiresAt = expired.NextAt
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{old, other}, Waits: []spool.Wait{expired, wait(other.ID, "zz.example", false, 0)},
	})
	claim := func() []*spool.Stored {
		start := time.Now()
		got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{
			Messages: 256, PerDestination: 40, Suspended: []pattern.Pattern{pattern.MustParse("*.b.example")},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("claimed past %d suspended messages in %s", *deadMessages, time.Since(start))
		return got
	}
	got := claim()
	if len(got) != 2 || got[0].ID != old.ID || got[1].ID != other.ID {
		t.Errorf("claimed %d messages, want the two that may be", len(got))
	}
	if again := claim(); len(again) > 0 {
		t.Errorf("claimed %d more", len(again))
	}
}

// Two spools on one database hear of a suspension, and of its end. A spool that starts anew knows of it.
func TestSpoolsHearOfSuspensions(t *testing.T) {
	f := newFixture(t)
	start := func(name string, store *postgres.Store) (*spool.Spool, func()) {
		s, stop := runAs(t, name, store, nil, nil)
		for _, stage := range []spool.Stage{spool.StageParser, spool.StageFilter, spool.StageDeliver} {
			join(t, s, stage, func(spool.ID) {})
		}
		return s, stop
	}
	first, stop := start("a", f.store)
	second, _ := start("b", openStore(t, f.url))
	f.suspend("*.b.example", 0)
	for _, s := range []*spool.Spool{first, second} {
		f.await("a spool does not hear of the suspension", func() bool { return f.waits(f.submit(s, "sub.b.example")) })
	}
	stop()
	first, _ = start("a", openStore(t, f.url))
	var waiting []spool.ID
	for _, s := range []*spool.Spool{first, second} {
		for range 5 {
			id := f.submit(s, "sub.b.example")
			if !f.waits(id) {
				t.Fatal("it was sent while its destination was suspended")
			}
			waiting = append(waiting, id)
			if f.waits(f.submit(s, "free.example")) {
				t.Fatal("another destination waits too")
			}
		}
	}
	queues, err := f.store.Queues(t.Context(), 10)
	if err != nil || len(queues) != 1 || queues[0].Destination != "sub.b.example" || queues[0].Messages < int64(len(waiting)) ||
		queues[0].WaitingSince.IsZero() {
		t.Errorf("queues %+v, %v", queues, err)
	}
	f.resume("*.b.example")
	for _, id := range waiting {
		f.await("it does not go on", func() bool { return f.ended(id) })
	}
	f.audit()
}

// submit hands a message for a destination to a spool.
func (f *fixture) submit(s *spool.Spool, destination string) spool.ID {
	f.Helper()
	m := message(f.T, "for "+destination, "rcpt@"+destination)
	done := make(chan error, 1)
	s.Submit(spool.Submission{ID: m.ID, Envelope: m.Envelope, Content: m.Content, Deadline: time.Now().Add(patience)},
		func(_ spool.Receipt, err error) { done <- err })
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	return m.ID
}

func (f *fixture) ended(id spool.ID) bool {
	return len(f.sql("SELECT message_id::text FROM outcome WHERE message_id = $1", id)) > 0
}

// waits tells of a message that has been submitted whether it waits and nobody owns it, or has ended.
func (f *fixture) waits(id spool.ID) bool {
	f.Helper()
	waits := false
	f.await("it neither waits nor ends", func() bool {
		waits = len(f.sql("SELECT destination FROM deferred WHERE message_id = $1 AND owner IS NULL", id)) > 0
		return waits || f.ended(id)
	})
	return waits
}
