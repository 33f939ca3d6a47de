package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func (f *fixture) reserve(key, content string, id spool.ID) (spool.ID, []byte) {
	f.Helper()
	hash := sha256.Sum256([]byte(content))
	kept, keptHash, err := f.store.ReserveKey(f.Context(), key, hash[:], id)
	if err != nil {
		f.Fatal(err)
	}
	return kept, keptHash
}

func TestKeyStandsForItsFirstMessage(t *testing.T) {
	f := newFixture(t)
	first, second := newID(t), newID(t)
	kept, hash := f.reserve("k", "one", first)
	if kept != first {
		t.Errorf("a new key stands for %s, want %s", kept, first)
	}
	again, hashAgain := f.reserve("k", "two", second)
	if again != first || !bytes.Equal(hash, hashAgain) {
		t.Errorf("the key stands for %s %x, want %s %x", again, hashAgain, first, hash)
	}
	if other, _ := f.reserve("K", "one", second); other != second {
		t.Errorf("another key stands for %s", other)
	}
	if _, _, err := f.store.ReserveKey(t.Context(), strings.Repeat("x", 256), hash, first); err == nil {
		t.Error("a key of 256 octets was kept")
	}
}

func TestKeyIsReservedOnceByMany(t *testing.T) {
	f := newFixture(t)
	hash := sha256.Sum256(nil)
	kept := make([]spool.ID, 8)
	var wg sync.WaitGroup
	for i := range kept {
		wg.Go(func() {
			var err error
			if kept[i], _, err = f.store.ReserveKey(t.Context(), "k", hash[:], newID(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range kept {
		if id != kept[0] {
			t.Fatalf("the key stands for different messages: %v", kept)
		}
	}
}

// A key whose message never became durable is free again once the message's id can't be accepted any more.
func TestOldKeyWithoutMessageIsNew(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	for name, test := range map[string]struct {
		age     string
		durable bool
		free    bool
	}{
		"young":             {"80 minutes", false, false},
		"old":               {"90 minutes", false, true},
		"old, but was sent": {"90 minutes", true, false},
	} {
		m := message(t, name)
		f.reserve(name, name, m.ID)
		if test.durable {
			f.commit(inc, messages(m))
		}
		f.sql("UPDATE send_key SET created_at = now() - $2::interval WHERE key = $1", name, test.age)
		next := newID(t)
		if kept, _ := f.reserve(name, name, next); (kept == next) != test.free {
			t.Errorf("%s: the key is free: %v", name, kept == next)
		}
	}
}

func TestHasMessage(t *testing.T) {
	f := newFixture(t)
	m, ended := message(t, "m"), message(t, "e")
	batch := messages(m, ended)
	batch.Outcomes = []spool.Outcome{outcome(ended.ID, delivered)}
	f.commit(f.register("a"), batch)
	for id, want := range map[spool.ID]bool{m.ID: true, ended.ID: true, newID(t): false} {
		if has, err := f.store.HasMessage(t.Context(), id); err != nil || has != want {
			t.Errorf("%s: %v %v, want %v", id, has, err, want)
		}
	}
}

// A message that has ended may go with its day before its key does: the key is not free, its outcome tells.
func TestKeyOfMessageWhoseDayHasGone(t *testing.T) {
	f := newFixture(t)
	f.dayAgo(3)
	inc := f.register("a")
	m := oldMessage(t, "sent", 3)
	f.reserve("k", "sent", m.ID)
	batch := messages(m)
	batch.Outcomes = []spool.Outcome{outcome(m.ID, delivered)}
	f.commit(inc, batch)
	f.sql("UPDATE send_key SET created_at = now() - interval '47 hours'")
	f.maintain(f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 10 * 24 * time.Hour}), inc)
	if left := f.sql("SELECT id::text FROM any_message"); len(left) > 0 {
		t.Fatalf("the day is still there: %v", left)
	}
	if kept, _ := f.reserve("k", "sent", newID(t)); kept != m.ID {
		t.Errorf("the key stands for %s, want %s", kept, m.ID)
	}
	if has, err := f.store.HasMessage(t.Context(), m.ID); err != nil || !has {
		t.Errorf("the message was never there: %v, %v", has, err)
	}
}

// A key is kept no longer than what tells whether its message was sent.
func TestKeysGoWithTheJournal(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	for _, key := range []string{"29 hours", "31 hours"} {
		f.reserve(key, key, newID(t))
		f.sql("UPDATE send_key SET created_at = now() - key::interval WHERE key = $1", key)
	}
	f.maintain(f.aged(postgres.Retention{Content: 24 * time.Hour, Journal: 30 * time.Hour}), inc)
	if left := f.sql("SELECT key FROM send_key"); len(left) != 1 || left[0] != "29 hours" {
		t.Errorf("left: %q", left)
	}
}

func TestMaintainForgetsKeys(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	for _, key := range []string{"47 hours", "49 hours"} {
		f.reserve(key, key, newID(t))
		f.sql("UPDATE send_key SET created_at = now() - key::interval WHERE key = $1", key)
	}
	if err := f.store.Maintain(t.Context(), inc); err != nil {
		t.Fatal(err)
	}
	if left := f.sql("SELECT key FROM send_key"); len(left) != 1 || left[0] != "47 hours" {
		t.Errorf("left: %q", left)
	}
}
