package postgres_test

import (
	"errors"
	"testing"

	"github.com/rohrpost/rohrpost/spool"
)

// The commit that lets a message go is not known, though it is in. The message is claimed before the commit is repeated:
// the repetition must not let it go once more, or two spools have it (promise P4).
func TestRepeatedCommitLeavesAClaimAlone(t *testing.T) {
	f := newFixture(t)
	store, p := throughProxy(t, f)
	f.store = store
	inc, other := f.register("a"), f.register("b")
	m := message(t, "unknown")
	f.commit(inc, messages(m))
	leave := &spool.Batch{
		Attempts: []spool.Attempt{{ID: newID(t), Message: m.ID, Kind: spool.AttemptNote}},
		Waits:    []spool.Wait{wait(m.ID, "b.example", false, 0)},
	}
	p.nextCommit(loseReply)
	if err := store.Commit(t.Context(), inc, leave); !errors.Is(err, spool.ErrCommitUnknown) {
		t.Fatalf("got %v, want ErrCommitUnknown", err)
	}
	if got, err := store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(got) != 1 {
		t.Fatalf("claimed %d, %v", len(got), err)
	}
	f.commit(inc, leave) // known now
	if got, err := store.Claim(t.Context(), other, spool.ClaimLimits{Messages: 10, PerDestination: 10}); err != nil || len(got) != 0 {
		t.Errorf("another spool claimed %d as well, %v", len(got), err)
	}
}
