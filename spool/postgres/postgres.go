// Package postgres keeps the spool in PostgreSQL. It is the only place that speaks SQL.
//
// Messages are appended and never updated: a message row when it is accepted, attempt rows on the way, one outcome row at
// its end. Only the waiting rows (table deferred) change. docs/sql.md describes the tables.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// Options say how to reach the database.
type Options struct {
	// URL is a connection string as libpq takes it.
	URL string
	// Unsafe allows a server that may lose committed data in a crash (fsync or full_page_writes off).
	Unsafe bool
	// MaxConns bounds the connections that write, and in the same number those that read; one more renews the lease.
	// 0 means 4.
	MaxConns int
	// CommitTimeout is the socket deadline of a transaction, COMMIT included. 0 means 10 seconds. It must lie below
	// what a client waits for its reply.
	CommitTimeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// TracerProvider may be nil: then it is the global one.
	TracerProvider trace.TracerProvider
	// Retention says how long mail is kept that has ended. The zero value keeps it for ever.
	Retention Retention
	// Faults strike the store in tests; nil in production.
	Faults *fault.Faults
}

// Store is a [spool.Store] and a [spool.Reader]. Its methods may be called concurrently.
type Store struct {
	opts   Options
	log    *slog.Logger
	tracer trace.Tracer
	writes *pgxpool.Pool // never sends a cancel request: see guardedConn
	leases *pgxpool.Pool // one connection like those of writes, for renewals alone: commits that hang don't hold them up
	reads  *pgxpool.Pool

	mu          sync.Mutex
	unknown     map[*spool.Batch]struct{}               // batches whose last commit is not known
	lostClaims  map[spool.Incarnation]map[spool.ID]bool // claimed, but the commit is not known
	visited     string                                  // the destination at which the last claim's second look ended
	epochs      map[spool.Incarnation]uuid.UUID         // of the incarnations that were registered here
	renewals    map[spool.Incarnation]int64             // of their leases, as far as they are known
	foreign     map[string]bool                         // days that somebody else has detached, as was said
	windowStart time.Time                               // partitions exist from here …
	windowEnd   time.Time                               // … up to here; zero before the first Register or Maintain
}

var (
	_ spool.Store  = (*Store)(nil)
	_ spool.Reader = (*Store)(nil)
)

// Open connects to a database and checks that its schema is this program's and that it keeps what it commits. The errors
// that are no outage wrap [ErrSchema], [ErrUnsafe] or [ErrDenied]; the database being away is [spool.ErrUnavailable].
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.MaxConns <= 0 {
		opts.MaxConns = 4
	}
	if opts.CommitTimeout <= 0 {
		opts.CommitTimeout = 10 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	s := &Store{
		opts: opts, log: opts.Logger,
		tracer:     opts.TracerProvider.Tracer("github.com/rohrpost/rohrpost/spool/postgres"),
		unknown:    map[*spool.Batch]struct{}{},
		lostClaims: map[spool.Incarnation]map[spool.ID]bool{}, epochs: map[spool.Incarnation]uuid.UUID{},
		renewals: map[spool.Incarnation]int64{}, foreign: map[string]bool{},
	}
	var err error
	if s.writes, err = newPool(ctx, opts, true); err != nil {
		return nil, err
	}
	one := opts
	one.MaxConns = 1
	if s.leases, err = newPool(ctx, one, true); err != nil {
		s.writes.Close()
		return nil, err
	}
	if s.reads, err = newPool(ctx, opts, false); err != nil {
		s.leases.Close()
		s.writes.Close()
		return nil, err
	}
	if err := s.check(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes all connections. It waits for calls that are under way.
func (s *Store) Close() {
	s.reads.Close()
	s.leases.Close()
	s.writes.Close()
}

// The errors of [Open] that no waiting mends.
var (
	// ErrUnsafe means that the server may lose what it has committed.
	ErrUnsafe = errors.New("postgres: the server is not durable")
	// ErrDenied means that the server does not let the user in, by name, password or address.
	ErrDenied = errors.New("postgres: the server refuses the user")
)

func (s *Store) check(ctx context.Context) error {
	var version int
	var fsync, pages string
	err := s.reads.QueryRow(ctx, `SELECT current_setting('server_version_num')::int,
		current_setting('fsync'), current_setting('full_page_writes')`).Scan(&version, &fsync, &pages)
	switch {
	case strings.HasPrefix(sqlState(err), "28"): // invalid authorization; of an open store an outage, as passwords change
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case err != nil:
		return classify(err)
	}
	if version < 140000 {
		return fmt.Errorf("%w: PostgreSQL %d is too old; 14 or newer is needed", ErrSchema, version/10000)
	}
	for name, value := range map[string]string{"fsync": fsync, "full_page_writes": pages} {
		if value == "off" && !s.opts.Unsafe {
			return fmt.Errorf("%w: %s is off, so that a crash can lose accepted mail; turn it on in postgresql.conf, or set spool.unsafe",
				ErrUnsafe, name)
		}
	}
	return CheckSchema(ctx, s.opts.URL)
}
