package postgres

import (
	"context"

	"github.com/rohrpost/rohrpost/spool"
)

// Usage tells how many rows wait, and how large the database is.
func (s *Store) Usage(ctx context.Context, waitingUpTo int) (spool.Usage, error) {
	var u spool.Usage
	err := s.reads.QueryRow(ctx, `SELECT (SELECT count(*) FROM (SELECT FROM deferred LIMIT $1) AS counted),
		pg_database_size(current_database())`, waitingUpTo).Scan(&u.Waiting, &u.Bytes)
	return u, classify(err)
}
