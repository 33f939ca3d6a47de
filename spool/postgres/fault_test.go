package postgres_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// struck opens a store that faults strike.
func (f *fixture) struck(text string) *postgres.Store {
	f.Helper()
	faults, err := fault.Parse(text, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	store, err := postgres.Open(f.Context(), postgres.Options{URL: f.url, Unsafe: true, Faults: faults})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	return store
}

// A commit fails before COMMIT: nothing is there. It fails behind it: that is unknown, and to repeat it is harmless (P1).
func TestCommitStruck(t *testing.T) {
	f := newFixture(t)
	store := f.struck("commit.written=fail@1,commit.done=fail@1")
	inc := f.register("a")
	m := message(t, "x")
	batch := messages(m)
	if err := store.Commit(t.Context(), inc, batch); !errors.Is(err, spool.ErrUnavailable) {
		t.Fatalf("before COMMIT: %v", err)
	}
	if has, err := store.HasMessage(t.Context(), m.ID); err != nil || has {
		t.Fatalf("nothing was committed, and it is there: %v %v", has, err)
	}
	if err := store.Commit(t.Context(), inc, batch); !errors.Is(err, spool.ErrCommitUnknown) {
		t.Fatalf("behind COMMIT: %v", err)
	}
	if err := store.Commit(t.Context(), inc, batch); err != nil {
		t.Fatalf("repeated: %v", err)
	}
	f.audit()
}

// An adopter dies at each step: another one brings the adoption to its end (P2, P4).
func TestAdoptionStruck(t *testing.T) {
	for _, point := range []fault.Point{fault.AdoptFenced, fault.AdoptWritten} {
		t.Run(string(point), func(t *testing.T) {
			f := newFixture(t)
			dead, err := f.store.Register(t.Context(), spool.Registration{Name: "dead", Lease: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			m := message(t, "x")
			f.commit(dead.Incarnation, messages(m))
			time.Sleep(5 * time.Millisecond)
			first, second := f.register("first"), f.register("second")
			if _, err := f.struck(string(point)+"=fail").AdoptExpired(t.Context(), first); err == nil {
				t.Fatal("no error where the adopter died")
			}
			// Its connections were cut: the first try meets that.
			late := messages(message(t, "late"))
			err = f.store.Commit(t.Context(), dead.Incarnation, late)
			for errors.Is(err, spool.ErrUnavailable) {
				err = f.store.Commit(t.Context(), dead.Incarnation, late)
			}
			if !errors.Is(err, spool.ErrFenced) {
				t.Errorf("the dead one commits: %v", err)
			}
			if n, err := f.store.AdoptExpired(t.Context(), second); n != 1 || err != nil {
				t.Fatalf("the second adopter found %d messages, %v", n, err)
			}
			got, err := f.store.Claim(t.Context(), second, spool.ClaimLimits{Messages: 10, PerDestination: 10})
			if err != nil || len(got) != 1 || got[0].ID != m.ID {
				t.Fatalf("claimed %v, %v", got, err)
			}
			f.audit()
		})
	}
}

// Two adopt the same dead spool, and the first sleeps in the middle of it: each message is adopted once, and claimed once (P4).
func TestAdoptersMeet(t *testing.T) {
	for _, point := range []fault.Point{fault.AdoptFenced, fault.AdoptWritten} {
		t.Run(string(point), func(t *testing.T) {
			f := newFixture(t)
			corpse := openStore(t, f.url) // whose connections are cut
			dead, err := corpse.Register(t.Context(), spool.Registration{Name: "dead", Lease: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := corpse.Commit(t.Context(), dead.Incarnation, messages(message(t, "x"))); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Millisecond)
			first, second := f.register("first"), f.register("second")
			sleeper := f.struck(string(point) + "=stall:500ms")
			type adopted struct {
				n   int
				err error
			}
			slept := make(chan adopted, 1)
			go func() {
				n, err := sleeper.AdoptExpired(t.Context(), first)
				slept <- adopted{n, err}
			}()
			f.await("nobody fences it", func() bool {
				return len(f.sql("SELECT name FROM incarnation WHERE name = 'dead' AND fenced_at IS NOT NULL")) > 0
			})
			n, err := f.store.AdoptExpired(t.Context(), second)
			if other := <-slept; err != nil || other.err != nil || n+other.n != 3 {
				t.Fatalf("adopted %d and %d messages, %v, %v; want 3 in all", n, other.n, err, other.err)
			}
			claimed := 0
			for store, inc := range map[*postgres.Store]spool.Incarnation{sleeper: first, f.store: second} {
				got, err := store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 2, PerDestination: 2})
				if err != nil {
					t.Fatal(err)
				}
				claimed += len(got)
			}
			if claimed != 3 {
				t.Errorf("%d messages were claimed, want 3", claimed)
			}
			f.audit()
		})
	}
}

// A spool dies when chunks of large content are durable, and its message is not: it was not accepted. Submitted again to the
// next start, cut differently, it is whole; and the dead one, should it wake up, accepts nothing (P1, P4).
func TestDiesBehindChunks(t *testing.T) {
	f := newFixture(t)
	sleeper := f.struck("content.durable=stall:500ms")
	content := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // 640 KiB
	dead := f.register("a")
	m := message(t, "")
	m.Size, m.Content = int64(len(content)), nil
	chunk := func(seq, from, to int) spool.Chunk {
		return spool.Chunk{Message: m.ID, Seq: int32(seq), Offset: int64(from), Data: content[from:to]}
	}
	woke := make(chan error, 1)
	go func() {
		woke <- sleeper.Commit(t.Context(), dead, &spool.Batch{Chunks: []spool.Chunk{chunk(0, 0, 250<<10)}})
	}()
	f.await("the chunk does not come", func() bool { return len(f.sql("SELECT seq::text FROM content_chunk")) > 0 })
	heir := f.register("a")
	f.commit(heir, &spool.Batch{Chunks: []spool.Chunk{chunk(0, 0, 200<<10), chunk(1, 200<<10, 400<<10)}})
	f.commit(heir, &spool.Batch{Messages: []spool.Message{m}, Chunks: []spool.Chunk{chunk(2, 400<<10, len(content))}})
	if err := <-woke; err != nil {
		t.Errorf("the chunk was durable, and its commit gives %v", err)
	}
	late := &spool.Batch{Messages: []spool.Message{m}, Chunks: []spool.Chunk{chunk(1, 250<<10, len(content))}}
	err := sleeper.Commit(t.Context(), dead, late)
	for errors.Is(err, spool.ErrUnavailable) { // its connections were cut: the first try meets that
		err = sleeper.Commit(t.Context(), dead, late)
	}
	if !errors.Is(err, spool.ErrFenced) {
		t.Errorf("the dead one accepts: %v", err)
	}
	var got bytes.Buffer
	if err := f.store.ReadContent(t.Context(), m.ID, 0, 0, into(&got)); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("read %d octets, %v; want the %d that were accepted", got.Len(), err, len(content))
	}
	f.audit()
}
