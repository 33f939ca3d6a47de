package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/epoch"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// run runs a spool on a database of its own connections until it is stopped.
func run(t *testing.T, store *postgres.Store, change func(*spool.Config), epochs spool.EpochKeeper) (s *spool.Spool, stop func()) {
	t.Helper()
	return runAs(t, "s", store, change, epochs)
}

// runAs is run under a name.
func runAs(
	t *testing.T, name string, store *postgres.Store, change func(*spool.Config), epochs spool.EpochKeeper,
) (s *spool.Spool, stop func()) {
	t.Helper()
	cfg := spool.DefaultConfig()
	cfg.Tick, cfg.Lease = 20*time.Millisecond, 10*time.Second
	if change != nil {
		change(&cfg)
	}
	s, err := spool.New(cfg, store, spool.Options{
		Name: name, Logger: slog.New(slog.DiscardHandler), TracerProvider: noop.NewTracerProvider(), Epochs: epochs,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	for deadline := time.Now().Add(patience); !s.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			cancel()
			t.Fatal("the spool did not come up")
		}
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// A backup is restored: what it says has not been sent may have been. The spool accepts mail and sends nothing, until an
// operator resumes (P3).
func TestRestoredBackupIsHeld(t *testing.T) {
	f := newFixture(t)
	epochs := epoch.File(filepath.Join(t.TempDir(), "epochs"))
	seeder := f.register("seeder")
	_, stop := run(t, f.store, nil, epochs)
	stop()
	if _, stop := run(t, f.store, nil, epochs); true { // a start on the same database is none
		stop()
	}
	if h, err := postgres.FindHold(t.Context(), f.url); h != nil || err != nil {
		t.Fatalf("held without reason: %v, %v", h, err)
	}

	// The backup is from before the two starts, and in it a message waits.
	f.sql("DELETE FROM incarnation WHERE name = 's'")
	m := message(t, "sent after the backup", "rcpt@b.example")
	f.commit(seeder, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, "b.example", false, 0)}})

	s, stop := run(t, f.store, nil, epochs)
	defer stop()
	delivered := make(chan spool.ID, 10)
	join(t, s, spool.StageParser, nil)
	join(t, s, spool.StageFilter, nil)
	join(t, s, spool.StageDeliver, func(id spool.ID) { delivered <- id })
	if !s.Held() {
		t.Fatal("it is not held")
	}
	h, err := postgres.FindHold(t.Context(), f.url)
	if err != nil || h == nil || h.Messages != 1 || h.Recipients != 1 {
		t.Fatalf("the hold: %+v, %v; want one message of one recipient", h, err)
	}
	fresh := message(t, "fresh", "rcpt@b.example")
	done := make(chan error, 1)
	s.Submit(spool.Submission{ID: fresh.ID, Envelope: fresh.Envelope, Content: fresh.Content, Deadline: time.Now().Add(patience)},
		func(_ spool.Receipt, err error) { done <- err })
	if err := <-done; err != nil {
		t.Errorf("a held spool does not accept: %v", err)
	}
	select {
	case id := <-delivered:
		t.Fatalf("%s was sent while the spool was held", id)
	case <-time.After(300 * time.Millisecond):
	}
	if _, err := postgres.Resume(t.Context(), f.url); err != nil {
		t.Fatal(err)
	}
	got := map[spool.ID]bool{}
	for len(got) < 2 {
		select {
		case id := <-delivered:
			got[id] = true
		case <-time.After(patience):
			t.Fatalf("only %v was sent after it was resumed", got)
		}
	}
	stop()
	if _, stop := run(t, f.store, nil, epochs); true {
		stop()
	}
	if h, err := postgres.FindHold(t.Context(), f.url); h != nil || err != nil {
		t.Errorf("held again after it was resumed: %v, %v", h, err)
	}
	f.audit()
}

// A backup may be from after a spool's start: it has the epoch, but not all renewals that the spool knows of.
func TestBackupFromAfterTheStartIsHeld(t *testing.T) {
	f := newFixture(t)
	inc := f.register("s")
	f.commit(inc, messages(message(t, "x")))
	renew := func() spool.Lease {
		l, err := f.store.Renew(t.Context(), inc, newID(t), lease)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range 3 {
		if renew().Held {
			t.Fatal("held without reason")
		}
	}
	f.sql("UPDATE incarnation SET renewals = renewals + 1") // one whose commit was not known
	if renew().Held {
		t.Fatal("held after a commit that was not known")
	}
	restore := func() { f.sql("UPDATE incarnation SET renewals = renewals - 1") }
	resume := func() {
		if h, err := postgres.Resume(t.Context(), f.url); h == nil || err != nil {
			t.Fatalf("the hold: %+v, %v", h, err)
		}
	}
	restore()
	if !renew().Held {
		t.Error("a spool that runs does not notice")
	}
	resume()
	last := renew()
	if last.Held {
		t.Error("held again after it was resumed")
	}

	reg := spool.Registration{Name: "s", Lease: lease}
	started, err := f.store.Register(t.Context(), reg)
	if err != nil {
		t.Fatal(err)
	}
	next, err := f.store.Renew(t.Context(), started.Incarnation, newID(t), lease)
	if err != nil {
		t.Fatal(err)
	}
	reg.Known = []spool.Epoch{{Incarnation: started.Incarnation, ID: started.Epoch, Time: started.Now, Renewals: next.Renewals}}
	if l, err := f.store.Register(t.Context(), reg); err != nil || l.Held {
		t.Fatalf("held %v, %v without reason", l.Held, err)
	}
	restore()
	if l, err := f.store.Register(t.Context(), reg); err != nil || !l.Held {
		t.Errorf("held %v, %v: a spool that starts does not notice", l.Held, err)
	}
}

// A spool that is stopped writes down how often it renewed its lease.
func TestRenewalsOutliveTheSpool(t *testing.T) {
	f := newFixture(t)
	epochs := epoch.File(filepath.Join(t.TempDir(), "epochs"))
	_, stop := run(t, f.store, nil, epochs)
	f.await("the lease is not renewed", func() bool { return len(f.sql("SELECT id::text FROM incarnation WHERE renewals > 0")) > 0 })
	stop()
	known, err := epochs.Load()
	if err != nil || len(known) != 1 || known[0].Renewals == 0 {
		t.Errorf("known are %+v, %v; want one that was renewed", known, err)
	}
}

// A spool that can't read what it knew can't tell whether the database was restored: it is held, once.
func TestUnreadableEpochsHold(t *testing.T) {
	f := newFixture(t)
	file := filepath.Join(t.TempDir(), "epochs")
	start := func() bool {
		s, stop := run(t, f.store, nil, epoch.File(file))
		defer stop()
		return s.Held()
	}
	damage := func() {
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	if start() {
		t.Error("a new database is held")
	}
	f.commit(f.register("other"), messages(message(t, "x")))
	damage()
	if !start() {
		t.Fatal("it is not held")
	}
	if h, err := postgres.Resume(t.Context(), f.url); err != nil || h == nil || !strings.Contains(h.Reason, file) {
		t.Errorf("the hold: %+v, %v; want one that names the file", h, err)
	}
	if start() {
		t.Error("held again after it was resumed")
	}
}

// In a restored database a number is given again: who had it before is not taken for the new one (P4).
func TestNumberGivenAgain(t *testing.T) {
	f := newFixture(t)
	old := f.register("old")
	f.sql("DELETE FROM incarnation WHERE id = $1", int64(old))
	f.sql(fmt.Sprintf("ALTER TABLE incarnation ALTER COLUMN id RESTART WITH %d", old))
	other := openStore(t, f.url)
	l, err := other.Register(t.Context(), spool.Registration{Name: "new", Lease: lease})
	if err != nil || l.Incarnation != old {
		t.Fatalf("registered as %d, %v; want %d again", l.Incarnation, err, old)
	}
	if err := f.store.Commit(t.Context(), old, messages(message(t, "x"))); err == nil {
		t.Error("the old one commits under the new one's number")
	}
	if err := other.Commit(t.Context(), old, messages(message(t, "x"))); err != nil {
		t.Error(err)
	}
}
