package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// The advisory locks. A database that other programs share with us would have to avoid these 64-bit keys: four letters of
// our name, then the number.
const (
	lockIncarnation = int64(0x524F_4852) << 32 // plus the incarnation's number
	lockPartitions  = int64(0x524F_4850) << 32
	lockClaim       = int64(0x524F_4843) << 32
	lockRegister    = int64(0x524F_4847) << 32
	lockRetention   = int64(0x524F_4854) << 32
)

func incarnationLock(inc spool.Incarnation) int64 { return lockIncarnation + int64(inc) }

// maxConflicts is how often a transaction is repeated that lost against another.
const maxConflicts = 3

// inTx runs a function in a transaction and commits it. The statements run under a context without an end: a cancelled
// one would make pgx send a cancel request. The socket's deadline bounds them instead.
//
// If inc is not 0, the transaction is fenced: it holds the incarnation's lock in shared mode, so that whoever fences the
// incarnation waits for it, and checks in a statement of its own, with a snapshot taken under the lock, that it has not
// been fenced.
func (s *Store) inTx(ctx context.Context, inc spool.Incarnation, do func(ctx context.Context, tx pgx.Tx) error) error {
	return s.inTxOf(ctx, s.writes, inc, do)
}

// inTxOf is inTx on a connection of a certain pool.
func (s *Store) inTxOf(
	ctx context.Context, pool *pgxpool.Pool, inc spool.Incarnation, do func(ctx context.Context, tx pgx.Tx) error,
) error {
	return repeatLost(func() error { return s.tryTx(ctx, pool, inc, do) })
}

// repeatLost repeats a transaction that lost against another.
func repeatLost(try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if !isConflict(err) || n == maxConflicts || errors.Is(err, spool.ErrCommitUnknown) {
			return err
		}
	}
}

func (s *Store) tryTx(
	ctx context.Context, pool *pgxpool.Pool, inc spool.Incarnation, do func(ctx context.Context, tx pgx.Tx) error,
) error {
	conn, err := s.acquire(ctx, pool, inc)
	if err != nil {
		return err
	}
	defer release(conn)
	ctx = context.WithoutCancel(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return classify(err)
	}
	if inc != 0 {
		err = s.checkFence(ctx, tx, inc)
	}
	if err == nil {
		err = do(ctx, tx)
	}
	return end(ctx, conn, tx, err)
}

// end commits, or rolls back where an error came up.
func end(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx, err error) error {
	if err != nil {
		_ = tx.Rollback(ctx) // a connection that can't even roll back is destroyed by the pool
		return classify(err)
	}
	return commit(ctx, conn, tx)
}

// checkFence takes the incarnation's lock and looks whether it may still act: two statements in one round trip.
func (s *Store) checkFence(ctx context.Context, tx pgx.Tx, inc spool.Incarnation) error {
	batch := &pgx.Batch{}
	s.queueFence(batch, inc)
	return tx.SendBatch(ctx, batch).Close()
}

// queueFence queues what checkFence does. Where the incarnation has been fenced, the batch fails with [spool.ErrFenced].
// In a database that was restored another may have the same number: then the epoch is another's.
func (s *Store) queueFence(batch *pgx.Batch, inc spool.Incarnation) {
	s.mu.Lock()
	epoch, known := s.epochs[inc]
	s.mu.Unlock()
	batch.Queue("SELECT pg_advisory_xact_lock_shared($1)", incarnationLock(inc))
	batch.Queue("SELECT EXISTS (SELECT FROM incarnation WHERE id = $1 AND fenced_at IS NULL AND (epoch = $2 OR NOT $3))",
		int64(inc), epoch, known).
		QueryRow(func(row pgx.Row) error {
			var live bool
			if err := row.Scan(&live); err != nil {
				return err
			}
			if !live {
				return spool.ErrFenced
			}
			return nil
		})
}

// inBatch is a fenced transaction of statements and rows that are known beforehand. It takes three round trips: the statements
// together with the start and the fence, the rows, and COMMIT. Each is sent only when all before has been well: without the
// start, rows would count by themselves.
func (s *Store) inBatch(ctx context.Context, inc spool.Incarnation, rows *encoded, queue func(*pgx.Batch)) error {
	return repeatLost(func() error { return s.tryBatch(ctx, inc, rows, queue) })
}

func (s *Store) tryBatch(ctx context.Context, inc spool.Incarnation, rows *encoded, queue func(*pgx.Batch)) error {
	conn, err := s.acquire(ctx, s.writes, inc)
	if err != nil {
		return err
	}
	defer release(conn)
	ctx = context.WithoutCancel(ctx)
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	s.queueFence(batch, inc)
	queue(batch)
	results := conn.SendBatch(ctx, batch)
	err = results.Close()
	if err == nil {
		err = copyAll(ctx, conn.Conn(), rows.all())
	}
	if err == nil && len(rows.cut) > 0 {
		covered := &pgx.Batch{}
		queueCoverage(covered, rows.cut)
		err = conn.SendBatch(ctx, covered).Close()
	}
	if err == nil {
		err = s.opts.Faults.Reach(fault.CommitWritten)
	}
	return end(ctx, conn, results.Tx(), err)
}

// commit commits, and says [spool.ErrCommitUnknown] where the server did not clearly say what came of it.
func commit(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx) error {
	data := conn.Conn().PgConn().CustomData()
	delete(data, dataWarning)
	err := tx.Commit(ctx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return classify(err)
	}
	if err != nil {
		return classifyCommit(err)
	}
	if warning, ok := data[dataWarning]; ok {
		return fmt.Errorf("%w: %v", spool.ErrCommitUnknown, warning)
	}
	return nil
}
