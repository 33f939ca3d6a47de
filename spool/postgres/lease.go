package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// Register makes a new incarnation and takes over from earlier ones of its name.
func (s *Store) Register(ctx context.Context, reg spool.Registration) (spool.Lease, error) {
	if err := s.makePartitions(ctx); err != nil {
		return spool.Lease{}, err
	}
	var lease spool.Lease
	var earlier []spool.Incarnation
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		// One at a time, so that of two processes of a name the later one sees the earlier.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockRegister); err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		lease = s.lease(now, reg.Lease)
		err := tx.QueryRow(ctx, `INSERT INTO incarnation (name, address, expires_at, low_water)
			VALUES ($1, $2, $3, $4) RETURNING id, epoch`, reg.Name, reg.Address, lease.Expires, idAt(lease.WindowStart)).
			Scan((*int64)(&lease.Incarnation), &lease.Epoch)
		if err != nil {
			return err
		}
		if err := checkEpochs(ctx, tx, reg); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, isHeld).Scan(&lease.Held); err != nil {
			return err
		}
		earlier, err = incarnations(ctx, tx, "SELECT id FROM incarnation WHERE name = $1 AND id < $2 AND adopted_at IS NULL ORDER BY id",
			reg.Name, int64(lease.Incarnation))
		return err
	})
	if err != nil {
		return spool.Lease{}, err
	}
	s.mu.Lock()
	s.epochs[lease.Incarnation] = lease.Epoch
	s.mu.Unlock()
	for _, dead := range earlier {
		if _, err := s.takeOver(ctx, lease.Incarnation, dead, false); err != nil {
			return spool.Lease{}, err
		}
	}
	return lease, nil
}

// Renew prolongs the lease, and holds the database where it has fewer renewals than are known: it has gone back in time. It takes no longer than its context allows, whatever other transactions wait for.
func (s *Store) Renew(ctx context.Context, inc spool.Incarnation, lowWater spool.ID, prolong time.Duration) (spool.Lease, error) {
	var lease spool.Lease
	err := s.inTxOf(ctx, s.leases, inc, func(ctx context.Context, tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		lease = s.lease(now, prolong)
		lease.Incarnation = inc
		err := tx.QueryRow(ctx, `UPDATE incarnation SET expires_at = $2, low_water = $3, renewals = renewals + 1 WHERE id = $1
			RETURNING renewals`, int64(inc), lease.Expires, lowWater).Scan(&lease.Renewals)
		if err != nil {
			return err
		}
		if err := s.checkRenewals(ctx, tx, lease); err != nil {
			return err
		}
		return tx.QueryRow(ctx, isHeld).Scan(&lease.Held)
	})
	if err == nil {
		s.mu.Lock()
		s.renewals[inc] = lease.Renewals
		s.mu.Unlock()
	}
	return lease, err
}

// lease makes a lease from the database's time. The window ends where the partitions do.
func (s *Store) lease(now time.Time, prolong time.Duration) spool.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := spool.Lease{Now: now, Expires: now.Add(prolong), WindowStart: now.Add(-windowBack), WindowEnd: now.Add(windowAhead)}
	if l.WindowStart.Before(s.windowStart) {
		l.WindowStart = s.windowStart
	}
	if l.WindowEnd.After(s.windowEnd) {
		l.WindowEnd = s.windowEnd
	}
	return l
}

// Peers tells the addresses of all other live incarnations.
func (s *Store) Peers(ctx context.Context, inc spool.Incarnation) ([]string, error) {
	rows, err := s.reads.Query(ctx, `SELECT DISTINCT address FROM incarnation
		WHERE id <> $1 AND fenced_at IS NULL AND expires_at > clock_timestamp() AND address <> '' ORDER BY address`, int64(inc))
	if err != nil {
		return nil, classify(err)
	}
	peers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return peers, classify(err)
}

func incarnations(ctx context.Context, q querier, sql string, args ...any) ([]spool.Incarnation, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (spool.Incarnation, error) {
		var id int64
		err := row.Scan(&id)
		return spool.Incarnation(id), err
	})
}

// errAlive means that an incarnation has renewed its lease after all.
var errAlive = errors.New("postgres: the incarnation lives")
