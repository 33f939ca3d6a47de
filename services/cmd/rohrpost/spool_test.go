package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/services/cli"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgservertest.Main(m)) }

func TestSpoolCommandsOnADatabase(t *testing.T) {
	var out bytes.Buffer
	std := &cli.IO{Out: &out}
	flag := databaseFlag{Database: pgservertest.NewDatabase(t)}
	audit, resume := spoolAudit{databaseFlag: flag}, spoolResume{databaseFlag: flag, Yes: true}
	if err := audit.Run(context.Background(), std); err == nil || !strings.Contains(err.Error(), "rohrpost migrate") {
		t.Errorf("an empty database: %v", err)
	}
	if err := postgres.Migrate(t.Context(), flag.Database); err != nil {
		t.Fatal(err)
	}
	if err := audit.Run(t.Context(), std); err != nil || !strings.Contains(out.String(), "Every message has an owner") {
		t.Errorf("the audit: %v, %q", err, out.String())
	}
	out.Reset()
	if err := resume.Run(t.Context(), std); err != nil || out.String() != "Nothing is held.\n" {
		t.Errorf("resuming: %v, %q", err, out.String())
	}
}

// `rohrpost spool` without more runs a spool, as it does in every unit file and container.
func TestSpoolRunsByDefault(t *testing.T) {
	if code := run([]string{"spool", "--config", "/nowhere/rohrpost.yaml"}); code == 0 {
		t.Error("it ran without its configuration")
	}
	t.Setenv("ROHRPOST_SPOOL_DATABASE", "")
	if code := run([]string{"spool"}); code != 2 {
		t.Errorf("without a database it ended by %d, want 2: it is the configuration that is wrong", code)
	}
}
