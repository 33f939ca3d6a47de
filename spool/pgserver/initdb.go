package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/jackc/pgx/v5"
)

// initialize makes the data folder. It is made beside its place and renamed, so that a start that dies half-way leaves no
// half-made data folder behind; where that can't be (a mount point can't be renamed over) it is made in place.
func (s *Server) initialize(ctx context.Context) error {
	beside := s.dir + ".new"
	if err := os.RemoveAll(beside); err != nil { // of a start that died
		return fmt.Errorf("pgserver: %w", err)
	}
	if err := os.Mkdir(beside, 0o700); err != nil {
		return s.initdb(ctx, s.dir)
	}
	defer func() { _ = os.RemoveAll(beside) }()
	if err := s.owner.give(beside); err != nil {
		return err
	}
	if err := s.initdb(ctx, beside); err != nil {
		return err
	}
	if err := os.Rename(beside, s.dir); err != nil {
		return s.initdb(ctx, s.dir)
	}
	return nil
}

func (s *Server) initdb(ctx context.Context, dir string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + Role, "--encoding=UTF8", "--locale=C", "--data-checksums",
		"--auth-local=trust", "--auth-host=reject",
	}
	if s.cfg.Settings["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, s.binaries.path("initdb"), args...) //nolint:gosec // our own arguments
	cmd.Dir = "/"                                                       // our working folder may be closed to the server's user
	s.owner.dress(cmd)
	// The thread that starts a command must live as long as it does: see dieWithParent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("pgserver: making the data folder %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return nil
}

// EnsureDatabase makes a database if there is none of the name.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("pgserver: making database %s: %w", name, err)
	}
	return nil
}
