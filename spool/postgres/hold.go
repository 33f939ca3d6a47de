package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// checkEpochs holds the database where it lacks an epoch that a spool knows: it was restored from a backup, and what it
// says has not been sent may have been. Epochs from before the last resumption count no more, and neither does any where
// there is no message that could be sent again. A spool that lost what it knew can't tell: that holds the database as well.
func checkEpochs(ctx context.Context, tx pgx.Tx, reg spool.Registration) error {
	if reg.Doubt != "" {
		_, err := tx.Exec(ctx, `INSERT INTO spool_hold (spool, reason) SELECT $1, $2 WHERE EXISTS (SELECT FROM any_message)
			ON CONFLICT DO NOTHING`, reg.Name, "it is not known whether the database was restored from a backup: "+reg.Doubt)
		return err
	}
	for _, known := range reg.Known {
		var lacks bool
		err := tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM incarnation WHERE id = $1 AND epoch = $2 AND renewals >= $4)
			AND NOT EXISTS (SELECT FROM spool_hold WHERE resumed_at > $3)
			AND EXISTS (SELECT FROM any_message)`, int64(known.Incarnation), known.ID, known.Time, known.Renewals).Scan(&lacks)
		if err != nil {
			return err
		}
		if !lacks {
			continue
		}
		reason := fmt.Sprintf("the database does not know of incarnation %d, which began at %s, or of its last renewals (%d): it was restored from a backup",
			known.Incarnation, known.Time.UTC().Format(time.RFC3339), known.Renewals)
		_, err = tx.Exec(ctx, "INSERT INTO spool_hold (spool, reason) VALUES ($1, $2) ON CONFLICT DO NOTHING", reg.Name, reason)
		return err
	}
	return nil
}

// checkRenewals holds the database where a lease that was just renewed has not been renewed more often than is known. Of a
// renewal whose commit is not known nothing is known: it may be there or not.
func (s *Store) checkRenewals(ctx context.Context, tx pgx.Tx, lease spool.Lease) error {
	s.mu.Lock()
	known := s.renewals[lease.Incarnation]
	s.mu.Unlock()
	if lease.Renewals > known {
		return nil
	}
	reason := fmt.Sprintf("the database knows of %d of %d renewals of incarnation %d: it was restored from a backup",
		lease.Renewals-1, known, lease.Incarnation)
	_, err := tx.Exec(ctx, `INSERT INTO spool_hold (spool, reason)
		SELECT name, $2 FROM incarnation WHERE id = $1 AND EXISTS (SELECT FROM any_message)
		ON CONFLICT DO NOTHING`, int64(lease.Incarnation), reason)
	return err
}

const isHeld = "SELECT EXISTS (SELECT FROM spool_hold WHERE resumed_at IS NULL)"

// Hold is a database of which nothing is sent, since it has gone back in time.
type Hold struct {
	Spool      string // who noticed
	Reason     string
	Since      time.Time
	Messages   int64 // that may be sent again: they have not ended, and were accepted before
	Recipients int64 // of these, at most
}

// FindHold tells whether a database is held, and what may be sent again when it is resumed; nil where it is not held.
func FindHold(ctx context.Context, url string) (*Hold, error) { return hold(ctx, url, false) }

// Resume ends the hold of a database, and tells what it was. Spools go on within a third of their lease.
func Resume(ctx context.Context, url string) (*Hold, error) { return hold(ctx, url, true) }

func hold(ctx context.Context, url string, resume bool) (*Hold, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var found *Hold
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		h := &Hold{}
		err := tx.QueryRow(ctx, "SELECT spool, reason, held_at FROM spool_hold WHERE resumed_at IS NULL FOR UPDATE").
			Scan(&h.Spool, &h.Reason, &h.Since)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = h
		err = tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(cardinality(m.recipients)), 0) FROM any_message m
			WHERE m.accepted_at <= $1 AND NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)`, h.Since).
			Scan(&h.Messages, &h.Recipients)
		if err != nil || !resume {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE spool_hold SET resumed_at = clock_timestamp() WHERE resumed_at IS NULL")
		return err
	})
	return found, classify(err)
}

// connect makes a connection for a command, to a database whose schema is this program's.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	if err := CheckSchema(ctx, url); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	return conn, classify(err)
}
