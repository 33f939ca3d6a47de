package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func TestMigrate(t *testing.T) {
	url := pgservertest.NewDatabase(t)
	f := &fixture{T: t, url: url}
	if err := postgres.CheckSchema(t.Context(), url); !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "rohrpost migrate") {
		t.Errorf("of an empty database: %v", err)
	}
	var wg sync.WaitGroup
	for range 2 { // two processes that start at once
		wg.Go(func() {
			if err := postgres.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := postgres.CheckSchema(t.Context(), url); err != nil {
		t.Error(err)
	}
	f.sql("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
	for name, err := range map[string]error{
		"CheckSchema": postgres.CheckSchema(t.Context(), url), "Migrate": postgres.Migrate(t.Context(), url),
	} {
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "99") || !strings.Contains(err.Error(), "newer program") {
			t.Errorf("%s on a newer schema: %v", name, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://localhost:1/x"}); !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://%zz"}); err == nil || !strings.Contains(err.Error(), "URL") {
		t.Errorf("no URL: %v", err)
	}
}
