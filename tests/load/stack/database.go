package stack

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool/pgserver"
)

// recreate makes an empty database in place of one that a run before left.
func recreate(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("making a database: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is under way
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)",
		"CREATE DATABASE " + name,
		"CHECKPOINT", // so that a checkpoint of what came before does not fall into the measurement
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making a database: %s: %w", statement, err)
		}
	}
	return nil
}

// Batch is the mean number of messages in a transaction of a pipeline that only accepts: its other transactions are few, and
// counted too, so the true mean lies a little higher.
func (s *Stack) Batch(ctx context.Context) (float64, error) {
	conn, err := pgx.Connect(ctx, s.Database())
	if err != nil {
		return 0, fmt.Errorf("counting transactions: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // it only reads
	var commits, messages float64
	err = conn.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&commits)
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT count(*) FROM message").Scan(&messages)
	}
	if err != nil {
		return 0, fmt.Errorf("counting transactions: %w", err)
	}
	return messages / max(1, commits), nil
}

// Recreate makes the database of a stack on a server anew, for something else than a stack to be measured on.
func Recreate(ctx context.Context, pg *pgserver.Server) error {
	return recreate(ctx, pg.URL("postgres"), database)
}

// Bare is a stack without processes, to watch a database server with and to name its database.
func Bare(pg *pgserver.Server) *Stack { return &Stack{pg: pg} }
