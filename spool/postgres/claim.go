package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// Claim takes ownership of messages that are due.
//
// Ownership is of messages, but rows are what can be locked. So that two spools never take different rows of one message,
// claims run one at a time: a lock of the whole database, held for one short transaction. Nothing else gives unowned rows
// an owner, and adoption adds rows only to messages without unowned ones.
//
// The messages are loaded before the transaction commits: one that can't be read for lack of a connection is not claimed.
func (s *Store) Claim(ctx context.Context, inc spool.Incarnation, limits spool.ClaimLimits) ([]*spool.Stored, error) {
	if limits.Messages <= 0 || limits.PerDestination <= 0 {
		return nil, nil
	}
	if err := s.giveBackLost(ctx, inc); err != nil {
		return nil, err
	}
	var loaded []*spool.Stored
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		loaded = nil
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockClaim); err != nil {
			return err
		}
		ids, err := s.pick(ctx, tx, limits)
		if err != nil || len(ids) == 0 {
			return err
		}
		loaded, err = takeAndLoad(ctx, tx, inc, ids)
		return err
	})
	if errors.Is(err, spool.ErrCommitUnknown) {
		s.noteLost(inc, loaded)
	}
	if err != nil {
		return nil, err
	}
	return loaded, nil
}

// takeAndLoad makes those messages the incarnation's that can be, and reads them. The claim lock is held.
func takeAndLoad(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, ids []spool.ID) ([]*spool.Stored, error) {
	ids, err := takeWhole(ctx, tx, inc, ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return loadAll(ctx, tx, ids)
}

// pick names messages that are due or soon will be, and those whose time is up though their destination is suspended.
func (s *Store) pick(ctx context.Context, tx pgx.Tx, limits spool.ClaimLimits) ([]spool.ID, error) {
	if len(limits.Suspended) == 0 {
		return s.pickDue(ctx, tx, limits)
	}
	expired, err := pickExpired(ctx, tx, limits.Messages)
	if err != nil {
		return nil, err
	}
	due, err := s.pickDue(ctx, tx, limits)
	if err != nil {
		return nil, err
	}
	picked := map[spool.ID]bool{}
	ids := keep(append(expired, due...), func(id spool.ID) bool {
		again := picked[id]
		picked[id] = true
		return !again
	})
	return ids[:min(len(ids), limits.Messages)], nil
}

// look is how many due rows the first look takes in: several times what is claimed at a time.
const look = 1024

// firstDue is the first look. However many rows wait for later, it must not read them: what is due is asked with a time that
// stands still in the statement, since no index is searched by clock_timestamp(), and the limit is written out, since for one that
// it does not know the planner expects a tenth of all rows and sorts them. docs/performance.md has what that costs.
var firstDue = fmt.Sprintf(`
	WITH first AS (
		SELECT message_id, destination, next_at FROM deferred
		WHERE owner IS NULL AND next_at <= statement_timestamp() + $5::interval ORDER BY next_at LIMIT %d
	), fair AS (
		SELECT message_id, destination, next_at, row_number() OVER (PARTITION BY destination ORDER BY next_at) AS place
		FROM first d WHERE %s
	)
	(SELECT message_id, 0 FROM fair WHERE place <= $3 OR destination = '!all'
	 GROUP BY message_id ORDER BY min(next_at) LIMIT $4)
	UNION ALL
	SELECT NULL, count(*) FROM first`, look, wanted)

// pickDue names messages that are due, those due longest first. Where one destination fills the first look, or those that
// are left out do, a second one goes from destination to destination, so that they can't hide the others.
func (s *Store) pickDue(ctx context.Context, tx pgx.Tx, limits spool.ClaimLimits) ([]spool.ID, error) {
	names, ends := without(limits)
	rows, err := tx.Query(ctx, firstDue, names, ends, limits.PerDestination, limits.Messages, limits.Ahead)
	if err != nil {
		return nil, err
	}
	var seen int
	ids, err := idsUntil(rows, &seen)
	if err != nil || len(ids) >= limits.Messages || seen < look {
		return ids, err
	}
	return s.pickElsewhere(ctx, tx, limits)
}

// visits is how many destinations one look from destination to destination takes in: about 10 µs each.
const visits = 2048

// pickElsewhere looks for messages that are due from destination to destination, going on where the last look ended.
func (s *Store) pickElsewhere(ctx context.Context, tx pgx.Tx, limits spool.ClaimLimits) ([]spool.ID, error) {
	s.mu.Lock()
	from := s.visited
	s.mu.Unlock()
	names, ends := without(limits)
	rows, err := tx.Query(ctx, `
		WITH RECURSIVE d AS (
			(SELECT destination, 1 AS n FROM deferred WHERE owner IS NULL AND destination > $5 ORDER BY destination LIMIT 1)
			UNION ALL
			SELECT (SELECT n.destination FROM deferred n WHERE n.owner IS NULL AND n.destination > d.destination
			        ORDER BY n.destination LIMIT 1), d.n + 1
			FROM d WHERE d.destination IS NOT NULL AND d.n < $6
		), due AS (
			SELECT p.message_id, min(p.next_at) AS next_at FROM d CROSS JOIN LATERAL (
				SELECT message_id, next_at FROM deferred r
				WHERE r.destination = d.destination AND r.owner IS NULL AND r.next_at <= statement_timestamp() + $7::interval
				ORDER BY r.next_at LIMIT $3
			) p
			WHERE d.destination IS NOT NULL AND `+wanted+`
			GROUP BY p.message_id ORDER BY 2 LIMIT $4
		)
		SELECT message_id, '' FROM due
		UNION ALL
		(SELECT NULL, coalesce((SELECT max(destination) FROM d HAVING count(destination) = $6), ''))`,
		names, ends, limits.PerDestination, limits.Messages, from, visits, limits.Ahead)
	if err != nil {
		return nil, err
	}
	ids, err := idsUntil(rows, &from)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.visited = from // the last destination, or nothing where the end was reached
	s.mu.Unlock()
	return ids, nil
}

// idsUntil reads ids, and from the last row, which has none, what stands beside.
func idsUntil(rows pgx.Rows, last any) ([]spool.ID, error) {
	defer rows.Close()
	var ids []spool.ID
	for rows.Next() {
		var id *spool.ID
		if err := rows.Scan(&id, last); err != nil {
			return nil, err
		}
		if id != nil {
			ids = append(ids, *id)
		}
	}
	return ids, rows.Err()
}

// takeWhole takes all rows of messages, and gives those messages of which it could take all: a row that somebody has
// locked (an operator at a prompt) leaves its message for later. Rows of messages that have ended are taken away.
func takeWhole(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, ids []spool.ID) ([]spool.ID, error) {
	_, err := tx.Exec(ctx, `DELETE FROM deferred d USING outcome o
		WHERE d.message_id = ANY ($1) AND o.message_id = d.message_id`, ids)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		WITH free AS MATERIALIZED (
			SELECT message_id FROM deferred WHERE message_id = ANY ($1) AND owner IS NULL FOR UPDATE SKIP LOCKED
		), whole AS (
			SELECT message_id FROM free GROUP BY message_id
			HAVING count(*) = (SELECT count(*) FROM deferred d WHERE d.message_id = free.message_id)
		), taken AS (
			UPDATE deferred d SET owner = $2 FROM whole w WHERE d.message_id = w.message_id RETURNING d.message_id
		)
		SELECT DISTINCT message_id FROM taken`, ids, int64(inc))
	if err != nil {
		return nil, err
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[spool.ID])
	if err != nil {
		return nil, err
	}
	whole := make(map[spool.ID]bool, len(taken))
	for _, id := range taken {
		whole[id] = true
	}
	return keep(ids, func(id spool.ID) bool { return whole[id] }), nil // in their order
}

// noteLost remembers messages that may be ours without being in anyone's memory: the commit of their claim is not known.
func (s *Store) noteLost(inc spool.Incarnation, loaded []*spool.Stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lostClaims[inc] == nil {
		s.lostClaims[inc] = map[spool.ID]bool{}
	}
	for _, m := range loaded {
		s.lostClaims[inc][m.ID] = true
	}
}

// giveBackLost frees the messages of claims that are not known. If the backend of such a claim still lives it holds the
// claim's lock, and this waits for it.
func (s *Store) giveBackLost(ctx context.Context, inc spool.Incarnation) error {
	s.mu.Lock()
	ids := make([]spool.ID, 0, len(s.lostClaims[inc]))
	for id := range s.lostClaims[inc] {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockClaim); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE deferred SET owner = NULL WHERE message_id = ANY ($1) AND owner = $2", ids, int64(inc))
		return err
	})
	if err != nil {
		return err // also where this commit is not known: freeing them again does no harm
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.lostClaims[inc], id)
	}
	return nil
}
