package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// aged opens a store with a retention.
func (f *fixture) aged(r postgres.Retention) *postgres.Store {
	f.Helper()
	store, err := postgres.Open(f.Context(), postgres.Options{URL: f.url, Unsafe: true, Retention: r})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	return store
}

// dayAgo makes the partitions of a day in the past, as they were made then.
func (f *fixture) dayAgo(days int) string {
	f.Helper()
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	for _, table := range []string{"message", "content_chunk", "attempt", "outcome", "message_search", "refusal"} {
		f.sql(fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s_%s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')",
			table, from.Format("20060102"), table, idAt(from), idAt(from.Add(24*time.Hour))))
	}
	return from.Format("20060102")
}

func idAt(at time.Time) spool.ID {
	var id spool.ID
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	return id
}

// oldMessage is a message that was accepted days ago.
func oldMessage(t *testing.T, content string, days int) spool.Message {
	m := message(t, content)
	m.Accepted = m.Accepted.AddDate(0, 0, -days)
	m.ID = youngerBy(m.ID, -time.Duration(days)*24*time.Hour)
	return m
}

func (f *fixture) maintain(store *postgres.Store, inc spool.Incarnation) {
	f.Helper()
	if err := store.Maintain(f.Context(), inc); err != nil {
		f.Fatal(err)
	}
}

// days lists the partitions of a table older than yesterday.
func (f *fixture) days(table string) []string {
	f.Helper()
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format("20060102")
	names := f.sql("SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1::text::regclass ORDER BY 1", table)
	return slices.DeleteFunc(names, func(name string) bool { return strings.TrimPrefix(name, table+"_") >= yesterday })
}

// A day goes when it is old: what has ended with it, what has not stays, content included, until it has.
func TestRetention(t *testing.T) {
	f := newFixture(t)
	ten, five, two := f.dayAgo(10), f.dayAgo(5), f.dayAgo(2)
	inc := f.register("a")
	large := bytes.Repeat([]byte("large content\r\n"), 2000)
	ended, held, old := oldMessage(t, "ended", 5), oldMessage(t, string(large), 5), oldMessage(t, "old", 10)
	note := spool.Attempt{ID: ended.ID, Message: ended.ID, Kind: spool.AttemptNote, Time: ended.Accepted}
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{ended, held, old}, Attempts: []spool.Attempt{note},
		Outcomes: []spool.Outcome{outcome(ended.ID, delivered), outcome(old.ID, delivered)},
		Waits:    []spool.Wait{wait(held.ID, spool.DestinationHold, false, 0)},
	})
	store := f.aged(postgres.Retention{Content: 3 * 24 * time.Hour, Journal: 8 * 24 * time.Hour})
	f.maintain(store, inc)

	for table, want := range map[string][]string{
		"message": {two}, "content_chunk": {two}, "attempt": {five, two}, "outcome": {five, two}, "message_search": {five, two},
		"refusal": {five, two},
	} {
		for i := range want {
			want[i] = table + "_" + want[i]
		}
		if diff := cmp.Diff(want, f.days(table)); diff != "" {
			t.Errorf("days of %s (-want +got):\n%s", table, diff)
		}
	}
	if got := f.sql("SELECT count(*)::text FROM pg_class WHERE relname LIKE '%" + ten + "%'"); got[0] != "0" {
		t.Errorf("%s tables of the oldest day are left", got[0])
	}
	f.audit()

	claimed, err := store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 10})
	if err != nil || len(claimed) != 1 || claimed[0].Err != nil || !bytes.Equal(claimed[0].Content, large) {
		t.Fatalf("what had not ended: %v, %v", claimed, err)
	}
	check(t, store, held.ID, large)
	if rec, err := store.Get(t.Context(), ended.ID); err != nil || rec.Outcome == nil || len(rec.Attempts) != 1 {
		t.Errorf("the journal of what has ended: %v, %v", rec, err)
	}
	if _, err := store.Get(t.Context(), old.ID); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("what is older than the journal: %v", err)
	}

	f.commit(inc, &spool.Batch{
		Outcomes: []spool.Outcome{outcome(held.ID, delivered)},
		Unwaits:  []spool.WaitKey{{Message: held.ID, Destination: spool.DestinationHold}},
	})
	f.maintain(store, inc)
	if left := f.sql("SELECT id::text FROM message_kept UNION ALL SELECT message_id::text FROM content_chunk_kept"); len(left) > 0 {
		t.Errorf("kept though it has ended: %v", left)
	}
}

// The place of an outcome stays for as long as one may come.
func TestRetentionWaitsForTheOldest(t *testing.T) {
	f := newFixture(t)
	day := f.dayAgo(20)
	inc := f.register("a")
	m := oldMessage(t, "forgotten", 20)
	f.commit(inc, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", false, 0)}})
	store := f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 48 * time.Hour})
	f.maintain(store, inc)
	if diff := cmp.Diff([]string{"outcome_" + day}, f.days("outcome")); diff != "" {
		t.Errorf("days of outcome (-want +got):\n%s", diff)
	}
	f.commit(inc, &spool.Batch{
		Outcomes: []spool.Outcome{outcome(m.ID, delivered)}, Unwaits: []spool.WaitKey{{Message: m.ID, Destination: "b.example"}},
	})
	// The incarnation's low-water mark has moved on since.
	f.maintain(store, inc) // takes it from the kept
	f.maintain(store, inc)
	if days := f.days("outcome"); len(days) > 0 {
		t.Errorf("still there: %v", days)
	}
}

// Too much mail: the oldest content goes before its time, never what may still be on its way in.
func TestRetentionByBytes(t *testing.T) {
	f := newFixture(t)
	f.dayAgo(4)
	three := f.dayAgo(3)
	inc := f.register("a")
	var batch spool.Batch
	for range 100 {
		m := oldMessage(t, strings.Repeat("x", 8000), 4)
		batch.Messages = append(batch.Messages, m, oldMessage(t, strings.Repeat("x", 8000), 3), message(t, strings.Repeat("x", 8000)))
	}
	for i := range batch.Messages {
		batch.Outcomes = append(batch.Outcomes, outcome(batch.Messages[i].ID, delivered))
	}
	f.commit(inc, &batch)
	total := f.sql("SELECT sum(pg_total_relation_size(inhrelid))::text FROM pg_inherits WHERE inhparent <> 0 AND inhrelid::regclass::text ~ '_[0-9]{8}$'")
	var bytes int64
	if _, err := fmt.Sscan(total[0], &bytes); err != nil {
		t.Fatal(err)
	}
	f.maintain(f.aged(postgres.Retention{Bytes: bytes - 100_000}), inc)
	if diff := cmp.Diff([]string{"message_" + three}, f.days("message")); diff != "" {
		t.Errorf("days of message (-want +got):\n%s", diff)
	}
	yesterday := "SELECT 'message_" + time.Now().UTC().AddDate(0, 0, -1).Format("20060102") + "'::regclass::oid::text"
	before := f.sql(yesterday)
	least := f.aged(postgres.Retention{Bytes: 1})
	f.maintain(least, inc)
	f.maintain(least, inc)
	if after := f.sql(yesterday); !slices.Equal(before, after) {
		t.Error("yesterday was taken out and made anew")
	}
	if days := f.days("message"); len(days) > 0 {
		t.Errorf("days of message: %v", days)
	}
	if n := f.sql("SELECT count(*)::text FROM message"); n[0] != "100" {
		t.Errorf("%s of today's 100 messages are left", n[0])
	}
}

// A spool that died while it took a day out: the next one goes on.
func TestRetentionGoesOn(t *testing.T) {
	f := newFixture(t)
	day, other := f.dayAgo(9), f.dayAgo(8)
	inc := f.register("a")
	for _, table := range []string{day, other} { // what has not ended was copied, day was detached too
		f.sql("COMMENT ON TABLE message_" + table + " IS 'rohrpost: is being taken out'")
	}
	f.sql("ALTER TABLE message DETACH PARTITION message_" + day)
	conn := f.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	reader := f.connect()
	defer func() { _ = reader.Close(t.Context()) }()
	if _, err := reader.Exec(t.Context(), "BEGIN; SELECT count(*) FROM message"); err != nil {
		t.Fatal(err)
	}
	// The reader holds it up, so that its second half does not happen.
	if _, err := conn.Exec(t.Context(), "SET lock_timeout = '100ms'"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "ALTER TABLE message DETACH PARTITION message_"+other+" CONCURRENTLY"); err == nil {
		t.Fatal("it was detached past a reader")
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	f.maintain(f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 48 * time.Hour}), inc)
	if left := f.sql("SELECT relname FROM pg_class WHERE relname IN ('message_" + day + "', 'message_" + other + "')"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A day that an operator detached, to archive it, is the operator's: mail in it may not have ended (P2).
func TestRetentionLeavesWhatOthersDetached(t *testing.T) {
	f := newFixture(t)
	day := f.dayAgo(9)
	inc := f.register("a")
	m := oldMessage(t, "held", 9)
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, spool.DestinationHold, false, 0)},
	})
	f.sql("ALTER TABLE message DETACH PARTITION message_" + day)
	store := f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 48 * time.Hour})
	for range 2 {
		f.maintain(store, inc)
	}
	if left := f.sql("SELECT id::text FROM message_" + day); len(left) != 1 || left[0] != m.ID.String() {
		t.Errorf("left of the day: %v", left)
	}
}

// A reader holds up taking a day out. A spool that stops breaks it off, and the server notices.
func TestRetentionIsBrokenOff(t *testing.T) {
	f := newFixture(t)
	day := f.dayAgo(9)
	inc := f.register("a")
	reader := f.connect()
	defer func() { _ = reader.Close(context.WithoutCancel(t.Context())) }()
	if _, err := reader.Exec(t.Context(), "BEGIN; SELECT count(*) FROM message"); err != nil {
		t.Fatal(err)
	}
	store := f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 48 * time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- store.Maintain(ctx, inc) }()
	waits := "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'ALTER TABLE%DETACH%' AND state = 'active'"
	f.await("the day is not being detached", func() bool { return len(f.sql(waits)) > 0 })
	stop()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a day was taken out past a reader")
		}
	case <-time.After(patience):
		t.Fatal("maintenance goes on")
	}
	f.await("the server goes on", func() bool { return len(f.sql(waits)) == 0 })
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	f.maintain(store, inc)
	if left := f.sql("SELECT relname FROM pg_class WHERE relname = 'message_" + day + "'"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func (f *fixture) await(otherwise string, is func() bool) {
	f.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatal(otherwise)
		}
	}
}
