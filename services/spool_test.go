package services

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgservertest.Main(m)) }

// hidden is a database at a socket that nobody finds until reveal is called.
func hidden(t *testing.T) (address string, reveal func()) {
	t.Helper()
	database := pgservertest.NewDatabase(t)
	if err := postgres.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	real, later := query.Get("host"), filepath.Join(t.TempDir(), "socket")
	query.Set("host", later)
	u.RawQuery = query.Encode()
	return u.String(), func() {
		if err := os.Symlink(real, later); err != nil {
			t.Fatal(err)
		}
	}
}

// A spool that starts before its database waits for it.
func TestSpoolWaitsForItsDatabase(t *testing.T) {
	address, reveal := hidden(t)
	type opened struct {
		store *postgres.Store
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		store, err := openStore(t.Context(), slog.New(slog.DiscardHandler), postgres.Options{URL: address, Unsafe: true})
		done <- opened{store, err}
	}()
	select {
	case o := <-done:
		t.Fatalf("it did not wait: %v", o.err)
	case <-time.After(2 * openWait):
	}
	reveal()
	select {
	case o := <-done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.store.Close()
	case <-time.After(time.Minute):
		t.Fatal("it does not see that the database is there")
	}
}

// Whoever stops a spool that waits is told nothing but that it was stopped.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	address, _ := hidden(t)
	ctx, cancel := context.WithTimeout(t.Context(), openWait)
	defer cancel()
	if _, err := openStore(ctx, slog.New(slog.DiscardHandler), postgres.Options{URL: address}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended by %v", err)
	}
}

// What no waiting mends is told at once.
func TestDatabaseThatRefusesTheSpool(t *testing.T) {
	u, err := url.Parse(pgservertest.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("nobody-of-this-name")
	_, err = openStore(t.Context(), slog.New(slog.DiscardHandler), postgres.Options{URL: u.String()})
	if !errors.Is(err, postgres.ErrDenied) {
		t.Errorf("it ended by %v, want that the user is refused", err)
	}
}
