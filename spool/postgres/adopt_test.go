package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

// P4: a fenced incarnation writes nothing, whatever it tries.
func TestFencedIncarnationWritesNothing(t *testing.T) {
	f := newFixture(t)
	old := f.register("a")
	m := message(t, "before")
	f.commit(old, messages(m))
	f.register("a")
	batch := messages(message(t, "after"))
	batch.Outcomes = []spool.Outcome{outcome(m.ID, delivered)}
	calls := map[string]func() error{
		"Commit": func() error { return f.store.Commit(t.Context(), old, batch) },
		"Renew": func() error {
			_, err := f.store.Renew(t.Context(), old, newID(t), lease)
			return err
		},
		"Claim": func() error {
			_, err := f.store.Claim(t.Context(), old, spool.ClaimLimits{Messages: 10, PerDestination: 10})
			return err
		},
		"AdoptExpired": func() error {
			_, err := f.store.AdoptExpired(t.Context(), old)
			return err
		},
		"Maintain": func() error { return f.store.Maintain(t.Context(), old) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, spool.ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", name, err)
		}
	}
	if got := f.sql("SELECT id::text FROM message"); len(got) != 1 {
		t.Errorf("messages: %v, want only the one from before", got)
	}
	if got := f.sql("SELECT message_id::text FROM outcome"); len(got) != 0 {
		t.Errorf("outcomes: %v, want none", got)
	}
	f.audit()
}

// A transaction that an incarnation has under way when it is fenced must be over before its messages are counted.
func TestFencingWaitsForOpenTransaction(t *testing.T) {
	f := newFixture(t)
	old := f.register("a")
	conn := f.connect() // stands for a backend whose name was not known to be the incarnation's
	defer func() { _ = conn.Close(t.Context()) }()
	for _, statement := range []string{
		"BEGIN", fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)", int64(0x524F4852)<<32+int64(old)),
		"SELECT 1 FROM incarnation",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	registered := make(chan spool.Incarnation, 1)
	go func() { registered <- f.register("a") }()
	for len(f.sql("SELECT pid::text FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()")) == 0 {
		select {
		case <-registered:
			t.Fatal("it was fenced while it had a transaction open")
		case <-time.After(5 * time.Millisecond):
		}
	}
	m := message(t, "late")
	_, err := conn.Exec(t.Context(), `INSERT INTO message (id, owner, sender, recipients, accepted_at, size, content_hash, envelope,
		traceparent, tracestate, content) VALUES ($1, $2, '', '{r@b.example}', now(), 0, '', '', '', '', '')`, m.ID, int64(old))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	<-registered
	if got := f.sql("SELECT destination FROM deferred WHERE message_id = $1", m.ID); !slices.Equal(got, []string{"!all"}) {
		t.Errorf("the late message was not adopted: %v", got)
	}
}

func TestAdoption(t *testing.T) {
	later := time.Now().Add(time.Hour)
	cases := []struct {
		name  string
		build func(m spool.Message, b *spool.Batch)
		rows  []string // destination, and whether it is due
	}{
		{"only in memory", func(spool.Message, *spool.Batch) {}, []string{"!all due"}},
		{"ended", func(m spool.Message, b *spool.Batch) {
			b.Outcomes = append(b.Outcomes, outcome(m.ID, delivered, delivered))
		}, nil},
		{"one waits and one is in memory", func(m spool.Message, b *spool.Batch) {
			w := wait(m.ID, "c.example", true, 1)
			w.NextAt = later
			b.Waits = append(b.Waits, w)
		}, []string{"!all due", "c.example later"}},
		{"one waits and one has ended", func(m spool.Message, b *spool.Batch) {
			w := wait(m.ID, "c.example", true, 1)
			w.NextAt = later
			b.Waits = append(b.Waits, w)
			b.Attempts = append(b.Attempts, spool.Attempt{
				ID: m.ID, Message: m.ID, Kind: spool.AttemptResult, Time: time.Now(),
				Ended: []spool.RecipientEnd{{Recipient: 0, State: delivered}},
			})
		}, []string{"c.example later"}},
		{"all wait", func(m spool.Message, b *spool.Batch) {
			b.Waits = append(b.Waits, wait(m.ID, "b.example", true, 0), wait(m.ID, "c.example", true, 1))
		}, []string{"b.example due", "c.example due"}},
		{"released before", func(m spool.Message, b *spool.Batch) {
			w := wait(m.ID, "c.example", false, 1)
			w.NextAt = later
			b.Waits = append(b.Waits, w)
		}, []string{"c.example later"}},
	}
	ends := map[string]func(f *fixture, dead spool.Incarnation) (int, error){
		"same name": func(f *fixture, _ spool.Incarnation) (int, error) {
			f.register("dead")
			return 5, nil
		},
		"expired": func(f *fixture, dead spool.Incarnation) (int, error) {
			heir := f.register("heir")
			f.sql("UPDATE incarnation SET expires_at = now() - interval '1 second' WHERE id = $1", int64(dead))
			return f.store.AdoptExpired(f.Context(), heir)
		},
		"handed over": func(f *fixture, dead spool.Incarnation) (int, error) {
			return f.store.HandOver(f.Context(), dead)
		},
		"adoption died half-way": func(f *fixture, dead spool.Incarnation) (int, error) {
			f.sql("UPDATE incarnation SET fenced_at = now() WHERE id = $1", int64(dead))
			return f.store.AdoptExpired(f.Context(), f.register("heir"))
		},
	}
	for end, finish := range ends {
		t.Run(end, func(t *testing.T) {
			f := newFixture(t)
			dead := f.register("dead")
			batch := &spool.Batch{}
			ids := map[string]spool.ID{}
			for _, c := range cases {
				m := message(t, c.name, "r0@b.example", "r1@c.example")
				ids[c.name] = m.ID
				batch.Messages = append(batch.Messages, m)
				c.build(m, batch)
			}
			f.commit(dead, batch)
			f.audit()
			n, err := finish(f, dead)
			if err != nil {
				t.Fatal(err)
			}
			if n != 4 && end != "same name" {
				t.Errorf("%d messages were adopted, want 4", n)
			}
			for _, c := range cases {
				got := f.sql(`SELECT destination || CASE WHEN next_at <= now() THEN ' due' ELSE ' later' END FROM deferred
					WHERE message_id = $1 AND owner IS NULL ORDER BY destination`, ids[c.name])
				if !slices.Equal(got, c.rows) {
					t.Errorf("%s: waiting rows %q, want %q", c.name, got, c.rows)
				}
			}
			if got := f.sql("SELECT message_id::text FROM deferred WHERE owner IS NOT NULL"); len(got) != 0 {
				t.Errorf("rows that are still owned: %v", got)
			}
			f.audit()
		})
	}
}

func TestAdoptExpiredLeavesTheLiving(t *testing.T) {
	f := newFixture(t)
	a, b := f.register("a"), f.register("b")
	m := message(t, "mine")
	f.commit(a, messages(m))
	if n, err := f.store.AdoptExpired(t.Context(), b); err != nil || n != 0 {
		t.Errorf("AdoptExpired gave %d, %v", n, err)
	}
	f.commit(a, &spool.Batch{Outcomes: []spool.Outcome{outcome(m.ID, delivered)}})
}

// A claimed message of a dead claimer comes back, though the row names another, still living owner.
func TestAdoptionOfClaimedMessage(t *testing.T) {
	f := newFixture(t)
	first, claimer := f.register("first"), f.register("claimer")
	m := message(t, "passed on")
	f.commit(first, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", false, 0)}})
	if got, err := f.store.Claim(t.Context(), claimer, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	f.audit()
	f.sql("UPDATE incarnation SET expires_at = now() - interval '1 second' WHERE id = $1", int64(claimer))
	if n, err := f.store.AdoptExpired(t.Context(), first); err != nil || n != 1 {
		t.Errorf("AdoptExpired gave %d, %v", n, err)
	}
	if got, err := f.store.Claim(t.Context(), first, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(got) != 1 {
		t.Errorf("Claim gave %v, %v", got, err)
	}
	f.audit()
}
