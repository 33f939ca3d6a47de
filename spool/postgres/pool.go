package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rohrpost/rohrpost/spool"
)

// newPool makes a pool for writing or for reading.
func newPool(ctx context.Context, opts Options, writes bool) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: the database URL can't be read: %w", err)
	}
	config.MaxConns = int32(min(opts.MaxConns, 1000))
	params := config.ConnConfig.RuntimeParams
	// P1: neither the role's nor the database's defaults may weaken what 250 promises.
	params["synchronous_commit"] = "on"
	params["default_transaction_isolation"] = "read committed" // fencing needs a new snapshot for each statement
	params["statement_timeout"] = "0"
	params["idle_in_transaction_session_timeout"] = "0"
	params["timezone"] = "UTC"
	params["jit"] = "off"
	params["work_mem"] = "16MB"                      // a batch of rows stands in it
	params["plan_cache_mode"] = "force_generic_plan" // a plan does not depend on the values, and planning costs more than a small batch
	params["application_name"] = appName(0)
	if !writes {
		params["application_name"] = "rohrpost-reader"
		return open(ctx, config)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &guardedConn{Conn: conn}, nil
	}
	config.ConnConfig.OnNotice = noteWarning
	config.AfterConnect = keepMemory
	return open(ctx, config)
}

// keepMemory has a backend keep the memory in which it puts a batch of rows together. By default the C library of most servers
// (glibc, mallopt(3), M_TRIM_THRESHOLD) gives it back to the system after each batch and faults it in again for the next, until a
// large piece has been freed: from then on it keeps twice as much.
func keepMemory(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT octet_length(repeat(' ', 4000000))")
	return err
}

func open(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return pool, nil
}

// appName is by which the backends of an incarnation are found when it is fenced.
func appName(inc spool.Incarnation) string {
	return "rohrpost-spool/" + strconv.FormatInt(int64(inc), 10)
}

// guardedConn refuses to carry a cancel request. pgx sends one, over a connection of its own, whenever it gives up on a
// connection. For a COMMIT that waits for a standby that would be worse than useless: the server ends the wait, and the
// row becomes visible without being safe.
type guardedConn struct {
	net.Conn
	started bool
}

var errNoCancel = errors.New("postgres: transactions are never cancelled in the server")

// Write sends octets, but no cancel request.
func (c *guardedConn) Write(p []byte) (int, error) {
	if !c.started && isCancelRequest(p) {
		return 0, errNoCancel
	}
	c.started = true
	return c.Conn.Write(p)
}

// isCancelRequest knows the message by its code. (PostgreSQL documentation, message formats: CancelRequest.)
func isCancelRequest(p []byte) bool {
	return len(p) >= 8 && binary.BigEndian.Uint32(p[4:]) == 80877102
}

// The keys of a connection's custom data.
const (
	dataIncarnation = "rohrpost.incarnation" // the incarnation that application_name tells
	dataWarning     = "rohrpost.warning"     // a warning that came since beginCommit
)

// noteWarning remembers a warning on the connection. The server says by one that a synchronous COMMIT did not wait for its
// standby: 01000 when cancelled, 57P01 when terminated. (PostgreSQL, syncrep.c.)
func noteWarning(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Code == "01000" || notice.Code == "57P01" {
		conn.CustomData()[dataWarning] = notice.Message
	}
}

// acquire takes a connection whose backend carries the incarnation's name (any, if it is 0) and whose socket has a
// deadline: that of the context, at the latest CommitTimeout from now.
func (s *Store) acquire(ctx context.Context, pool *pgxpool.Pool, inc spool.Incarnation) (*pgxpool.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, s.opts.CommitTimeout)
	defer cancel()
	conn, err := pool.Acquire(wait)
	if err != nil {
		return nil, classify(err)
	}
	deadline := time.Now().Add(s.opts.CommitTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := setDeadline(conn.Conn(), deadline); err != nil {
		conn.Release()
		return nil, classify(err)
	}
	data := conn.Conn().PgConn().CustomData()
	if inc == 0 || data[dataIncarnation] == inc {
		return conn, nil
	}
	_, err = conn.Exec(context.WithoutCancel(ctx), "SELECT set_config('application_name', $1, false)", appName(inc))
	if err != nil {
		release(conn)
		return nil, classify(err)
	}
	data[dataIncarnation] = inc
	return conn, nil
}

// release gives a connection back. The pool destroys one that is broken or still in a transaction.
func release(conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() {
		_ = setDeadline(conn.Conn(), time.Time{})
	}
	conn.Release()
}

func setDeadline(conn *pgx.Conn, at time.Time) error { return conn.PgConn().Conn().SetDeadline(at) }
