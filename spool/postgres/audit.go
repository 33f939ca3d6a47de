package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// Problem is something that must not be: see the view spool_audit in docs/sql.md.
type Problem struct {
	Message spool.ID
	Text    string
}

// Audit looks for messages that nothing will bring to an end (promise P2), and for what else violates an invariant of the
// tables. It reads every message that is kept, and changes nothing.
func Audit(ctx context.Context, url string) ([]Problem, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SELECT message_id, problem FROM spool_audit ORDER BY message_id, problem")
	if err != nil {
		return nil, classify(err)
	}
	problems, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Problem])
	return problems, classify(err)
}
