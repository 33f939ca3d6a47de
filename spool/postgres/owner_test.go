package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

func TestRegisterAndRenew(t *testing.T) {
	f := newFixture(t)
	l, err := f.store.Register(t.Context(), spool.Registration{Name: "a", Address: "a:1", Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Expires.Equal(l.Now.Add(lease)) || !l.WindowStart.Before(l.Now) || l.WindowEnd.Before(l.Now.Add(time.Minute)) {
		t.Errorf("an odd lease: %+v", l)
	}
	renewed, err := f.store.Renew(t.Context(), l.Incarnation, newID(t), 2*lease)
	if err != nil || renewed.Incarnation != l.Incarnation || renewed.Expires.Before(l.Expires) {
		t.Errorf("Renew gave %+v, %v", renewed, err)
	}
	b := f.register("b")
	if peers, err := f.store.Peers(t.Context(), b); err != nil || !slices.Equal(peers, []string{"a:1"}) {
		t.Errorf("Peers gave %v, %v", peers, err)
	}
	if err := f.store.Maintain(t.Context(), b); err != nil {
		t.Errorf("Maintain: %v", err)
	}
}

func TestClaim(t *testing.T) {
	f := newFixture(t)
	a, b := f.register("a"), f.register("b")
	due := message(t, "due "+strings.Repeat("x", 9000), "r0@b.example", "r1@c.example")
	large := message(t, strings.Repeat("y", spool.InlineLimit+1))
	notYet := message(t, "not yet")
	wLater := wait(due.ID, "c.example", false, 1)
	wLater.NextAt = time.Now().Add(time.Hour)
	wNotYet := wait(notYet.ID, "b.example", false, 0)
	wNotYet.NextAt = time.Now().Add(time.Hour)
	attempt := spool.Attempt{ID: newID(t), Message: due.ID, Kind: spool.AttemptPermit, Destination: "b.example", Number: 1, Time: time.Now()}
	f.commit(a, &spool.Batch{
		Messages: []spool.Message{due, large, notYet}, Attempts: []spool.Attempt{attempt},
		Waits: []spool.Wait{wait(due.ID, "b.example", false, 0), wLater, wait(large.ID, "b.example", false, 0), wNotYet},
	})
	got, err := f.store.Claim(t.Context(), b, spool.ClaimLimits{Messages: 10, PerDestination: 10})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d messages, %v; want the two that are due", len(got), err)
	}
	for _, m := range got {
		if m.Err != nil {
			t.Error(m.Err)
		}
		for _, w := range m.Waits {
			if !w.Owned {
				t.Errorf("the row for %s of a claimed message has no owner", w.Destination)
			}
		}
		switch m.ID {
		case due.ID:
			if string(m.Content) != string(due.Content) || len(m.Attempts) != 1 || len(m.Waits) != 2 {
				t.Errorf("%d octets, %d attempts, %d waiting rows", len(m.Content), len(m.Attempts), len(m.Waits))
			}
		case large.ID:
			if m.Content != nil || m.Size != spool.InlineLimit+1 {
				t.Errorf("large content was loaded: %d octets", len(m.Content))
			}
		}
	}
	if again, err := f.store.Claim(t.Context(), a, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(again) != 0 {
		t.Errorf("claimed twice: %v, %v", again, err)
	}
	ahead := spool.ClaimLimits{Messages: 10, PerDestination: 10, Ahead: 59 * time.Minute}
	if early, err := f.store.Claim(t.Context(), a, ahead); err != nil || len(early) != 0 {
		t.Errorf("claimed more than an hour ahead: %v, %v", early, err)
	}
	ahead.Ahead = time.Hour
	if early, err := f.store.Claim(t.Context(), a, ahead); err != nil || len(early) != 1 || early[0].ID != notYet.ID {
		t.Errorf("claimed an hour ahead: %v, %v", early, err)
	}
	f.audit()
	// It gives one back.
	f.commit(b, &spool.Batch{Releases: []spool.ID{due.ID}})
	if again, err := f.store.Claim(t.Context(), a, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(again) != 1 || again[0].ID != due.ID {
		t.Errorf("after the release: %v, %v", again, err)
	}
	f.audit()
}

// Case B2: many claim at once, and each message has one claimer.
func TestConcurrentClaims(t *testing.T) {
	f := newFixture(t)
	owner := f.register("owner")
	batch := &spool.Batch{}
	const count = 200
	for range count {
		m := message(t, "m", "r0@b.example", "r1@c.example")
		batch.Messages = append(batch.Messages, m)
		batch.Waits = append(batch.Waits, wait(m.ID, "b.example", false, 0), wait(m.ID, "c.example", false, 1))
	}
	f.commit(owner, batch)
	var mu sync.Mutex
	claimer := map[spool.ID]spool.Incarnation{}
	var wg sync.WaitGroup
	for i := range 4 {
		store, inc := openStore(t, f.url), f.register(fmt.Sprintf("claimer-%d", i))
		wg.Go(func() {
			for {
				got, err := store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 7, PerDestination: 5})
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, m := range got {
					if other, ok := claimer[m.ID]; ok {
						t.Errorf("message %s was claimed by %d and %d", m.ID, other, inc)
					}
					claimer[m.ID] = inc
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(claimer) != count {
		t.Errorf("%d messages were claimed, want %d", len(claimer), count)
	}
	f.audit()
}

// A dead destination with many due rows must not hide the others (P6).
func TestClaimIsFair(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	batch := &spool.Batch{}
	for i := range 60 {
		m := message(t, "m")
		destination := "dead.example"
		if i >= 50 {
			destination = fmt.Sprintf("d%d.example", i)
		}
		w := wait(m.ID, destination, false, 0)
		w.NextAt = time.Now().Add(time.Duration(i-100) * time.Second) // those of the dead one are due longest
		batch.Messages, batch.Waits = append(batch.Messages, m), append(batch.Waits, w)
	}
	f.commit(inc, batch)
	got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 3})
	if err != nil {
		t.Fatal(err)
	}
	dead := 0
	for _, m := range got {
		if m.Waits[0].Destination == "dead.example" {
			dead++
		}
	}
	if len(got) != 10 || dead != 3 {
		t.Errorf("%d messages, %d of them for the dead destination; want 10 and 3", len(got), dead)
	}
}

// Cases A4 and C6: a row that can't be read hurts only itself.
func TestClaimOfDamagedRows(t *testing.T) {
	damage := map[string]string{
		"its envelope":          "UPDATE message SET envelope = '\\xffff' WHERE id = $1",
		"its verdict":           "UPDATE message SET verdict = '\\xffff' WHERE id = $1",
		"its content":           "DELETE FROM content_chunk WHERE message_id = $1",
		"its row is missing":    "DELETE FROM message WHERE id = $1",
		"its recipients' state": "UPDATE attempt SET ended_replies = '{}', ended_states = '{}', ended_recipients = '{}', journal = '\\xffff' WHERE message_id = $1",
	}
	for name, statement := range damage {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			inc := f.register("a")
			batch := &spool.Batch{}
			for range 3 {
				m := message(t, strings.Repeat("z", 9000))
				batch.Messages = append(batch.Messages, m)
				batch.Waits = append(batch.Waits, wait(m.ID, "b.example", false, 0))
				batch.Attempts = append(batch.Attempts, spool.Attempt{ID: newID(t), Message: m.ID, Kind: spool.AttemptNote, Time: time.Now()})
			}
			f.commit(inc, batch)
			bad := batch.Messages[1].ID
			f.sql(statement, bad)
			got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 10})
			if err != nil || len(got) != 3 {
				t.Fatalf("%d messages, %v", len(got), err)
			}
			for _, m := range got {
				if (m.Err != nil) != (m.ID == bad) {
					t.Errorf("message %s: %v", m.ID, m.Err)
				}
				if len(m.Waits) != 1 {
					t.Errorf("message %s has %d waiting rows", m.ID, len(m.Waits))
				}
			}
		})
	}
}

// claimable is a store behind a proxy, with one message that waits to be claimed.
func claimable(t *testing.T) (*fixture, *proxy, spool.Incarnation) {
	t.Helper()
	f := newFixture(t)
	store, p := throughProxy(t, f)
	f.store = store
	inc := f.register("a")
	m := message(t, "m")
	f.commit(inc, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", false, 0)}})
	return f, p, inc
}

// A claim whose commit is not known must not leave messages that nobody has in memory.
func TestUnknownClaim(t *testing.T) {
	f, p, inc := claimable(t)
	p.nextCommit(loseReply)
	if _, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 10}); !errors.Is(err, spool.ErrCommitUnknown) {
		t.Fatalf("got %v, want ErrCommitUnknown", err)
	}
	got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 10})
	if err != nil || len(got) != 1 {
		t.Errorf("%d messages, %v; want the one that was lost", len(got), err)
	}
}

// The backend of the unknown claim is still in its transaction: the next claim waits for it.
func TestUnknownClaimStillUnderWay(t *testing.T) {
	f, p, inc := claimable(t)
	release := p.nextCommit(holdCommit)
	limits := spool.ClaimLimits{Messages: 10, PerDestination: 10}
	if _, err := f.store.Claim(t.Context(), inc, limits); !errors.Is(err, spool.ErrCommitUnknown) {
		t.Fatalf("got %v, want ErrCommitUnknown", err)
	}
	claimed := make(chan int, 1)
	ctx := t.Context()
	go func() {
		got, err := f.store.Claim(ctx, inc, limits)
		if err != nil {
			t.Error(err)
		}
		claimed <- len(got)
	}()
	f.await("the second claim does not wait for the first", func() bool {
		return len(f.sql("SELECT pid::text FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()")) > 0
	})
	close(release)
	if got := <-claimed; got != 1 {
		t.Errorf("%d messages; want the one that was lost", got)
	}
}

func TestWaitsOwnership(t *testing.T) {
	f := newFixture(t)
	a, b := f.register("a"), f.register("b")
	m := message(t, "m", "r0@b.example", "r1@c.example")
	f.commit(a, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", true, 0)}})
	f.commit(a, &spool.Batch{Waits: []spool.Wait{wait(m.ID, "c.example", false, 1)}})
	if got := f.sql("SELECT destination FROM deferred WHERE owner IS NULL ORDER BY 1"); len(got) != 2 {
		t.Errorf("the last row written says that it has no owner, but only %v have none", got)
	}
	if _, err := f.store.Claim(t.Context(), b, spool.ClaimLimits{Messages: 1, PerDestination: 1}); err != nil {
		t.Fatal(err)
	}
	// A late write of the old owner must not take it back, nor delete a row of the new one.
	f.commit(a, &spool.Batch{
		Waits:    []spool.Wait{wait(m.ID, "b.example", true, 0)},
		Unwaits:  []spool.WaitKey{{Message: m.ID, Destination: "c.example"}},
		Releases: []spool.ID{m.ID},
	})
	if got := f.sql("SELECT destination FROM deferred WHERE owner = $1 ORDER BY 1", int64(b)); len(got) != 2 {
		t.Errorf("the claimer owns only %v", got)
	}
	f.audit()
}

func TestMaintainSweepsOrphans(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	young, whole := newID(t), message(t, strings.Repeat("w", 9000))
	f.commit(inc, messages(whole))
	f.commit(inc, &spool.Batch{Chunks: []spool.Chunk{{Message: young, Data: []byte("young")}}})
	old := youngerBy(young, -25*time.Hour-time.Minute)
	// Its day has a partition unless the test runs in the first hour of a day (UTC).
	f.sql("CREATE TABLE IF NOT EXISTS content_chunk_old PARTITION OF content_chunk FOR VALUES FROM ('00000000-0000-7000-8000-000000000000') TO ('" +
		dayStart(-1) + "')")
	f.commit(inc, &spool.Batch{Chunks: []spool.Chunk{{Message: old, Data: []byte("old")}}})
	if err := f.store.Maintain(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	got := f.sql("SELECT message_id::text FROM content_chunk ORDER BY 1")
	want := []string{young.String(), whole.ID.String()}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

func TestAuditFindsViolations(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	lost, split, ended := message(t, "lost"), message(t, "split"), message(t, "ended")
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{lost, split, ended}, Outcomes: []spool.Outcome{outcome(ended.ID, delivered)},
		Waits: []spool.Wait{wait(split.ID, "b.example", false, 0), wait(split.ID, "c.example", false, 0)},
	})
	f.audit()
	f.sql("INSERT INTO deferred SELECT $1, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply FROM deferred LIMIT 1", ended.ID)
	f.sql("UPDATE deferred SET owner = $1 WHERE destination = 'c.example'", int64(inc))
	f.sql("UPDATE message SET owner = 12345 WHERE id = $1", lost.ID)
	f.sql("INSERT INTO deferred SELECT $1, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply FROM deferred LIMIT 1", newID(t))
	got := strings.Join(f.sql("SELECT problem FROM spool_audit"), "\n")
	for _, want := range []string{"is gone", "several owners", "has ended", "without a message"} {
		if !strings.Contains(got, want) {
			t.Errorf("the audit does not say %q:\n%s", want, got)
		}
	}
}

func TestMessageStatus(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	active, deferred, held, ended := message(t, "1"), message(t, "2"), message(t, "3"), message(t, "4")
	hold := wait(held.ID, spool.DestinationHold, false, 0)
	hold.Reason = spool.WaitHold
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{active, deferred, held, ended}, Outcomes: []spool.Outcome{outcome(ended.ID, delivered)},
		Waits: []spool.Wait{wait(deferred.ID, "b.example", false, 0), hold},
	})
	for id, want := range map[spool.ID]string{
		active.ID: "active a", deferred.ID: "deferred ", held.ID: "held ", ended.ID: "ended ",
	} {
		if got := f.sql("SELECT state || ' ' || coalesce(owner, '') FROM message_status WHERE id = $1", id); got[0] != want {
			t.Errorf("got %q, want %q", got[0], want)
		}
	}
	got := f.sql("SELECT event || ' ' || stage FROM journal WHERE message_id = $1 ORDER BY at", ended.ID)
	if want := []string{"accepted spool", "delivered deliver"}; !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
}

// A renewal neither waits for transactions that hang nor hangs longer than it is given.
func TestRenewDoesNotHang(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	conn := f.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	commits := make(chan error, 6)
	for range 6 { // more than there are connections
		go func() { commits <- f.store.Commit(t.Context(), inc, messages(message(t, "x"))) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if _, err := f.store.Renew(ctx, inc, newID(t), lease); err != nil {
		t.Errorf("while commits hang: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if err := <-commits; err != nil {
			t.Error(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE incarnation IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	start := time.Now()
	if _, err := f.store.Renew(short, inc, newID(t), lease); !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("while its own row is locked: %v", err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("it took %s of 200 ms", took)
	}
}

func TestUsage(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	for range 3 {
		m := message(t, "x")
		f.commit(inc, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", false, 0)}})
	}
	for upTo, want := range map[int]int{0: 0, 2: 2, 100: 3} {
		if u, err := f.store.Usage(t.Context(), upTo); err != nil || u.Waiting != want || u.Bytes < 1<<20 {
			t.Errorf("counted up to %d: %+v, %v; want %d waiting", upTo, u, err, want)
		}
	}
}
