package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

const (
	// keyAge is how long an idempotency key is remembered, unless outcomes are kept for less: see sweepKeys.
	keyAge = 2 * day
	// keyFree is when a key is free whose message is not there: its id is no longer accepted, and every commit that was
	// under way when it was has ended, at the latest with its incarnation's lease.
	keyFree = windowBack + 10*time.Minute
)

// ReserveKey makes durable which message an idempotency key stands for, and tells it: the given one where the key is new,
// otherwise the one that was given first, with its hash. hash has 32 octets, key 1 to 255. Where the id of a key is too
// old to be accepted any more and its message never became durable, the key counts as new.
//
// Where it fails the key may have been reserved: call it again.
func (s *Store) ReserveKey(ctx context.Context, key string, hash []byte, id spool.ID) (spool.ID, []byte, error) {
	var kept spool.ID
	var keptHash []byte
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		// A row in conflict is locked even where the condition leaves it as it is, so the second statement finds it.
		err := tx.QueryRow(ctx, `INSERT INTO send_key AS k (key, hash, message_id) VALUES ($1, $2, $3)
			ON CONFLICT (key) DO UPDATE
			SET hash = excluded.hash, message_id = excluded.message_id, created_at = excluded.created_at
			WHERE k.created_at < clock_timestamp() - $4::interval
			  AND NOT EXISTS (SELECT FROM any_message m WHERE m.id = k.message_id)
			  AND NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = k.message_id)
			RETURNING message_id, hash`, key, hash, id, keyFree).Scan(&kept, &keptHash)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return tx.QueryRow(ctx, "SELECT message_id, hash FROM send_key WHERE key = $1", key).Scan(&kept, &keptHash)
	})
	return kept, keptHash, err
}

// HasMessage tells whether a message is durable, whoever owns it and whether or not it has ended. Of one whose day has
// gone the outcome says so.
func (s *Store) HasMessage(ctx context.Context, id spool.ID) (bool, error) {
	var has bool
	err := s.reads.QueryRow(ctx, `SELECT EXISTS (SELECT FROM any_message WHERE id = $1)
		OR EXISTS (SELECT FROM outcome WHERE message_id = $1)`, id).Scan(&has)
	return has, classify(err)
}

// sweepKeys forgets idempotency keys whose time is over: at the latest when the outcome of their message may go, since
// without it a key would look as if nothing had been sent.
func (s *Store) sweepKeys(ctx context.Context, tx pgx.Tx) error {
	age := keyAge
	if journal := s.opts.Retention.Journal; journal > 0 {
		age = min(age, journal)
	}
	_, err := tx.Exec(ctx, "DELETE FROM send_key WHERE created_at < clock_timestamp() - $1::interval", age)
	return err
}
