package postgres_test

import (
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
