package postgres_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rohrpost/rohrpost/spool"
)

// youngerBy moves the time in an id.
func youngerBy(id spool.ID, by time.Duration) spool.ID {
	ms := int64(binary.BigEndian.Uint64(id[:8])>>16) + by.Milliseconds()
	rest := binary.BigEndian.Uint16(id[6:])
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|uint64(rest))
	return id
}

// dayStart is the lowest id of a day before or after today, UTC.
func dayStart(days int) string {
	var id uuid.UUID
	at := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, days)
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	return id.String()
}

func (f *fixture) events(cursor string, limit int) ([]spool.StoredEvent, string) {
	f.Helper()
	events, next, err := f.store.Events(f.Context(), cursor, limit)
	if err != nil {
		f.Fatal(err)
	}
	return events, next
}

// settle waits until every transaction that began before has ended, in any database of the server: until then one of
// them, such as autovacuum's, may hold events back.
func (f *fixture) settle() {
	f.Helper()
	newest := f.sql("SELECT pg_current_xact_id()::text")[0]
	f.await("an older transaction stays open", func() bool {
		return f.sql("SELECT (pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8)::text", newest)[0] == "true"
	})
}

func TestEvents(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	f.commit(inc, messages(message(t, "before")))
	f.settle()
	events, start := f.events("", 10)
	if len(events) != 0 || start == "" {
		t.Fatalf("the empty cursor gave %d events and %q", len(events), start)
	}
	m := message(t, "m")
	f.commit(inc, messages(m))
	f.commit(inc, &spool.Batch{Attempts: []spool.Attempt{{ID: newID(t), Message: m.ID, Kind: spool.AttemptPermit, Time: time.Now()}}})
	f.commit(inc, &spool.Batch{Outcomes: []spool.Outcome{outcome(m.ID, delivered)}})
	f.settle()
	events, next := f.events(start, 10)
	if len(events) != 3 || !events[2].Ended || events[0].Ended {
		t.Fatalf("got %+v", events)
	}
	if got := events[0].Journal; len(got) != 1 || got[0].GetEvent() != "accepted" || got[0].GetTraceId() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the acceptance came with %v", got)
	}
	if got := events[2].Journal; len(got) != 1 || got[0].GetEvent() != "delivered" {
		t.Errorf("the end came with %v", got)
	}
	if events, same := f.events(next, 10); len(events) != 0 || same != next {
		t.Errorf("at the end: %v, %q", events, same)
	}
	// One at a time gives the same.
	at := start
	for i := range 3 {
		one, next := f.events(at, 1)
		if len(one) != 1 || one[0].Cursor != events[i].Cursor || next != one[0].Cursor {
			t.Fatalf("event %d by itself: %+v", i, one)
		}
		at = next
	}
	if _, _, err := f.store.Events(t.Context(), "nonsense", 1); err == nil {
		t.Error("nonsense was taken for a cursor")
	}
}

// A transaction that began earlier and commits later must not put an event before a cursor that was given out.
func TestEventsHaveNoGap(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	f.settle()
	_, start := f.events("", 10)
	conn := f.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	slow := newID(t)
	for _, statement := range []string{
		"BEGIN", `INSERT INTO message (id, owner, sender, recipients, accepted_at, size, content_hash, envelope, traceparent,
			tracestate, content) VALUES ('` + slow.String() + `', 1, '', '{r@b.example}', now(), 0, '', '', '', '', '')`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	fast := message(t, "fast")
	f.commit(inc, messages(fast))
	events, next := f.events(start, 10)
	if len(events) != 0 {
		t.Errorf("an event was told that another may still come before: %+v", events)
	}
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	f.settle()
	events, _ = f.events(next, 10)
	if len(events) != 2 || events[0].Message != slow || events[1].Message != fast.ID {
		t.Errorf("got %+v, want the slow one and then the fast one", events)
	}
}
