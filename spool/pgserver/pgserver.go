// Package pgserver runs a private PostgreSQL server on a data folder of its own: it finds the binaries, makes the folder,
// starts the server as a child process and stops it. It never deletes data.
//
// The server listens on a unix socket alone, in a folder that only its own user (and root) can enter. That folder is the
// whole access control: whoever reaches the socket is trusted.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Role is the name of the superuser that Start creates in a new data folder and that URL names.
const Role = "rohrpost"

// port only names the socket file: the server never listens on TCP.
const port = "5432"

// Config says which server to run.
type Config struct {
	// Dir is the data folder (PGDATA). It is made if it does not exist. As root it is given to the unprivileged user
	// that the server runs as.
	Dir string
	// Binaries is a folder with postgres and initdb. Empty to look for them: in PATH, then in the usual places, and
	// then to fetch them once into Cache.
	Binaries string
	// Cache is where fetched binaries are kept. Empty for a folder below the user's cache folder, or
	// /var/cache/rohrpost as root.
	Cache string
	// NoFetch forbids to fetch binaries from the internet.
	NoFetch bool
	// Settings are server settings by name, over the defaults. Durability is on unless they turn it off.
	Settings map[string]string
	// StartTimeout bounds how long the server may take until it accepts connections, crash recovery included. 0 means
	// 2 minutes.
	StartTimeout time.Duration
	// Logger gets the server's log. nil discards it.
	Logger *slog.Logger
}

// Server is a running PostgreSQL. Its methods may be called concurrently, but only one of Stop, Kill, Immediate and
// Restart at a time.
type Server struct {
	cfg       Config
	binaries  binaries
	owner     *owner
	dir       string // the data folder with symbolic links resolved
	socketDir string
	ownSocket bool // socketDir is ours to remove

	mu   sync.Mutex
	proc *process // the current postmaster; replaced by Restart
}

// Start starts a server on a data folder and returns when it accepts connections. Only the start is bound to ctx, not
// the server's life: it runs until Stop. On Linux it also ends (by a fast shutdown) when this process dies.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("pgserver: no data folder given")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()

	own, err := serverOwner()
	if err != nil {
		return nil, err
	}
	dir, err := prepareDir(ctx, cfg, own)
	if err != nil {
		return nil, err
	}
	version, err := dataVersion(dir)
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, cfg, version)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, binaries: bin, owner: own, dir: dir}
	if version == 0 {
		if err := s.initialize(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.makeSocketDir(); err != nil {
		return nil, err
	}
	if err := s.launch(ctx); err != nil {
		s.removeSocketDir()
		return nil, err
	}
	return s, nil
}

// Dir tells the data folder with symbolic links resolved.
func (s *Server) Dir() string { return s.dir }

// Version tells the server's version, such as "15.14".
func (s *Server) Version() string { return s.binaries.full }

// URL tells the connection string of a database of the server. It stays the same over restarts of the Server.
func (s *Server) URL(database string) string {
	query := url.Values{"host": {s.socketDir}, "port": {port}}
	u := url.URL{Scheme: "postgres", User: url.User(Role), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

// Done is closed when the current server process has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.current().done }

// Stop ends the server by a fast shutdown: open transactions are rolled back, connections closed. When ctx ends first the
// shutdown becomes an immediate one, which costs nothing but the next start's recovery.
func (s *Server) Stop(ctx context.Context) error {
	defer s.removeSocketDir()
	return s.halt(ctx)
}

// Immediate ends the server as a crash would (SIGQUIT): the next start recovers from the log. It is for tests.
func (s *Server) Immediate() error {
	p := s.current()
	if err := p.signal(syscall.SIGQUIT); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Kill ends the server and all its processes by SIGKILL, so that nothing that was only in their memory can reach the
// disk. It is for tests. Where the system does not tell a process's children it is the same as Immediate.
func (s *Server) Kill() error {
	p := s.current()
	if !killTree(p.pid) {
		return s.Immediate()
	}
	<-p.done
	return nil
}

// Restart starts the server again on the same folder and socket. If it is still running, it is stopped first.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	if err := s.halt(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(s.socketDir, 0o700); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if err := s.owner.give(s.socketDir); err != nil {
		return err
	}
	return s.launch(ctx)
}

func (s *Server) halt(ctx context.Context) error {
	p := s.current()
	if err := p.signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.signal(syscall.SIGQUIT); err != nil {
		return err
	}
	<-p.done
	return fmt.Errorf("pgserver: the server did not stop in time and was stopped at once: %w", ctx.Err())
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// maxSocketPath is what fits in sockaddr_un on Linux; the BSDs take 103. (unix(7).)
const maxSocketPath = 103

// makeSocketDir puts the socket into the data folder, which is private to the server's user already; where its path is
// too long, into a folder of its own.
func (s *Server) makeSocketDir() error {
	if len(filepath.Join(s.dir, ".s.PGSQL."+port)) <= maxSocketPath {
		s.socketDir = s.dir
		return nil
	}
	dir, err := os.MkdirTemp("", "rohrpost-pg-") // 0700
	if err != nil {
		return fmt.Errorf("pgserver: making a folder for the socket: %w", err)
	}
	if len(filepath.Join(dir, ".s.PGSQL."+port)) > maxSocketPath {
		_ = os.Remove(dir)
		return fmt.Errorf("pgserver: the paths of %s and of %s are both too long for a unix socket (%d octets); set TMPDIR to a shorter one",
			s.dir, dir, maxSocketPath)
	}
	s.socketDir, s.ownSocket = dir, true
	return s.owner.give(dir)
}

func (s *Server) removeSocketDir() {
	if s.ownSocket {
		_ = os.RemoveAll(s.socketDir)
	}
}
