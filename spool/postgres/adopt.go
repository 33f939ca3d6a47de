package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// AdoptExpired takes over from every incarnation whose lease has ended, and from those whose adoption another began and
// did not finish.
func (s *Store) AdoptExpired(ctx context.Context, inc spool.Incarnation) (int, error) {
	var dead []spool.Incarnation
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		dead, err = incarnations(ctx, tx, `SELECT id FROM incarnation
			WHERE adopted_at IS NULL AND id <> $1 AND (fenced_at IS NOT NULL OR expires_at < clock_timestamp())
			ORDER BY id`, int64(inc))
		return err
	})
	if err != nil {
		return 0, err
	}
	total := 0
	for _, d := range dead {
		n, err := s.takeOver(ctx, inc, d, true)
		if errors.Is(err, errAlive) {
			continue
		}
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// HandOver fences the caller's own incarnation and makes its messages due without owner.
func (s *Store) HandOver(ctx context.Context, inc spool.Incarnation) (int, error) {
	// No backend is terminated: a commit that is still under way may end, and the lock waits for it.
	if err := s.fence(ctx, inc, false); err != nil {
		return 0, err
	}
	return s.adopt(ctx, 0, inc)
}

// takeOver fences an incarnation and adopts its messages.
func (s *Store) takeOver(ctx context.Context, inc, dead spool.Incarnation, onlyExpired bool) (int, error) {
	if err := s.terminate(ctx, inc, dead); err != nil {
		return 0, err
	}
	if err := s.fence(ctx, dead, onlyExpired); err != nil {
		return 0, err
	}
	if err := s.opts.Faults.Reach(fault.AdoptFenced); err != nil {
		return 0, classify(err)
	}
	n, err := s.adopt(ctx, inc, dead)
	if err == nil {
		s.log.InfoContext(ctx, "adopted the messages of another incarnation", "incarnation", dead, "messages", n)
	}
	return n, err
}

// terminate ends the backends of a dead incarnation, so that one which hangs with its process's machine gone does not
// hold its lock for ever. Fencing does not rest on it: the lock does.
func (s *Store) terminate(ctx context.Context, inc, dead spool.Incarnation) error {
	// A process that takes over from itself has connections of that name in its own pool.
	defer s.leases.Reset()
	defer s.writes.Reset()
	return s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()`, appName(dead))
		return err
	})
}

// fence marks an incarnation and returns when that is committed: whatever the incarnation commits later fails, and
// whatever it committed before is visible to the next snapshot.
func (s *Store) fence(ctx context.Context, dead spool.Incarnation, onlyExpired bool) error {
	return s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		// Waits until no transaction of the incarnation is left. (The socket's deadline bounds it.)
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", incarnationLock(dead)); err != nil {
			return err
		}
		var fenced, expired bool
		err := tx.QueryRow(ctx, "SELECT fenced_at IS NOT NULL, expires_at < clock_timestamp() FROM incarnation WHERE id = $1",
			int64(dead)).Scan(&fenced, &expired)
		if errors.Is(err, pgx.ErrNoRows) {
			return spool.ErrFenced // there never was such an incarnation in this database
		}
		if err != nil || fenced {
			return err
		}
		if onlyExpired && !expired {
			return errAlive
		}
		_, err = tx.Exec(ctx, "UPDATE incarnation SET fenced_at = clock_timestamp() WHERE id = $1", int64(dead))
		return err
	})
}

// adoptTimeout bounds an adoption, which looks at each message of the last hour or so: far more than a commit may take.
const adoptTimeout = 5 * time.Minute

// adopt gives every unfinished message of a fenced incarnation a waiting row that is due, and frees its waiting rows.
// Two that adopt the same incarnation do so one after the other, and the second finds it done.
func (s *Store) adopt(ctx context.Context, inc, dead spool.Incarnation) (int, error) {
	adopted := 0
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		adopted = 0
		if err := setDeadline(tx.Conn(), time.Now().Add(adoptTimeout)); err != nil {
			return err
		}
		var lowWater spool.ID
		err := tx.QueryRow(ctx, `SELECT low_water FROM incarnation
			WHERE id = $1 AND fenced_at IS NOT NULL AND adopted_at IS NULL FOR UPDATE`, int64(dead)).Scan(&lowWater)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var batch pgx.Batch
		// One plan for all incarnations takes each to own most messages, and reads all of them.
		batch.Queue("SET LOCAL plan_cache_mode = force_custom_plan")
		batch.Queue(adoptMessages, int64(dead), lowWater)
		batch.Queue(freeWaits, int64(dead)).QueryRow(func(row pgx.Row) error { return row.Scan(&adopted) })
		batch.Queue("UPDATE incarnation SET adopted_at = clock_timestamp() WHERE id = $1", int64(dead))
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return s.opts.Faults.Reach(fault.AdoptWritten)
	})
	return adopted, err
}

// adoptMessages gives a row for all recipients to each message that has a recipient which neither has ended nor has a
// waiting row: such a recipient was only in the dead owner's memory. The candidates are the messages whose row names the
// dead owner and those that it had claimed. A message whose waiting rows belong to another, or to nobody, was not in the
// dead owner's memory any more and is left alone. The row belongs to the dead owner until freeWaits frees and counts it.
const adoptMessages = `
WITH candidate AS (
	SELECT m.id FROM message m WHERE m.owner = $1 AND m.id >= $2
	UNION
	SELECT k.id FROM message_kept k WHERE k.owner = $1
	UNION
	SELECT d.message_id FROM deferred d WHERE d.owner = $1
)
INSERT INTO deferred (message_id, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply)
SELECT DISTINCT ON (m.id) m.id, '!all', $1, 'all', '{}', 0, clock_timestamp(), 'infinity', ''
FROM candidate c JOIN any_message m ON m.id = c.id
WHERE NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)
  AND NOT EXISTS (SELECT FROM deferred d WHERE d.message_id = m.id AND d.owner IS DISTINCT FROM $1)
  AND EXISTS (
	SELECT generate_series(0, cardinality(m.recipients) - 1)
	EXCEPT SELECT unnest(d.recipients) FROM deferred d WHERE d.message_id = m.id
	EXCEPT SELECT unnest(a.ended_recipients) FROM attempt a WHERE a.message_id = m.id)
ON CONFLICT (message_id, destination) DO UPDATE SET next_at = least(deferred.next_at, EXCLUDED.next_at)`

// freeWaits takes the dead owner from its waiting rows. Those that wait for later keep their time.
const freeWaits = `
WITH freed AS (UPDATE deferred SET owner = NULL WHERE owner = $1 RETURNING message_id)
SELECT count(DISTINCT message_id) FROM freed`
