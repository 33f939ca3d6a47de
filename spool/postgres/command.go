package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// commandChannel is on which spools are told that there are commands, or other suspensions.
const commandChannel = "rohrpost_command"

// commandAge is how long commands are remembered that are done, and suspensions that have ended.
const commandAge = 30 * day

// Order makes a command durable and tells the spools. NOTIFY stands in a transaction of its own: within one of messages its
// lock at COMMIT would make all of them wait for each other.
func (s *Store) Order(ctx context.Context, id spool.ID, verb spool.Verb, by string) (int64, error) {
	var command int64
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "INSERT INTO command (message_id, verb, by_whom) VALUES ($1, $2, $3) RETURNING id",
			id, string(verb), clean(by)).Scan(&command)
	})
	if err != nil {
		return 0, err
	}
	return command, s.notifySpools(ctx)
}

// CommandResult tells what came of a command, and whether it is done.
func (s *Store) CommandResult(ctx context.Context, command int64) (result string, done bool, err error) {
	err = s.reads.QueryRow(ctx, "SELECT result, done_at IS NOT NULL FROM command WHERE id = $1", command).Scan(&result, &done)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, spool.ErrNotFound
	}
	return result, done, classify(err)
}

// HearCommands listens on a connection of its own.
func (s *Store) HearCommands(ctx context.Context, heard func()) error {
	conn, err := pgx.Connect(ctx, s.opts.URL)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+commandChannel); err != nil {
		return classify(err)
	}
	for {
		heard()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return classify(err)
		}
	}
}

// OpenCommands lists commands that are not done, the oldest first, and claims the messages among them that are nobody's.
// Commands about messages that have ended, or that are not there, are done by it.
func (s *Store) OpenCommands(ctx context.Context, inc spool.Incarnation, limit int) ([]spool.Command, []*spool.Stored, error) {
	if err := s.giveBackLost(ctx, inc); err != nil {
		return nil, nil, err
	}
	var some bool
	if err := s.reads.QueryRow(ctx, "SELECT EXISTS (SELECT FROM command WHERE done_at IS NULL)").Scan(&some); err != nil || !some {
		return nil, nil, classify(err)
	}
	var commands []spool.Command
	var loaded []*spool.Stored
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		commands, loaded = nil, nil
		_, err := tx.Exec(ctx, `UPDATE command c SET done_at = clock_timestamp(), result = CASE
				WHEN EXISTS (SELECT FROM outcome o WHERE o.message_id = c.message_id) THEN 'it has ended' ELSE 'there is no such message' END
			WHERE done_at IS NULL AND (EXISTS (SELECT FROM outcome o WHERE o.message_id = c.message_id)
				OR NOT EXISTS (SELECT FROM any_message m WHERE m.id = c.message_id))`)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT id, message_id, verb, by_whom FROM command WHERE done_at IS NULL ORDER BY id LIMIT $1", limit)
		if err != nil {
			return err
		}
		if commands, err = pgx.CollectRows(rows, pgx.RowToStructByPos[spool.Command]); err != nil || len(commands) == 0 {
			return err
		}
		ids := make([]spool.ID, len(commands))
		for i := range commands {
			ids[i] = commands[i].Message
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockClaim); err != nil {
			return err
		}
		loaded, err = takeAndLoad(ctx, tx, inc, ids)
		return err
	})
	if errors.Is(err, spool.ErrCommitUnknown) {
		s.noteLost(inc, loaded)
	}
	if err != nil {
		return nil, nil, err
	}
	return commands, loaded, nil
}

// queueDone marks commands as done, in the transaction that has their effect.
func queueDone(q *pgx.Batch, done []spool.CommandDone) {
	for _, d := range done {
		q.Queue("UPDATE command SET done_at = clock_timestamp(), result = $2 WHERE id = $1 AND done_at IS NULL", d.Command, clean(d.Result))
	}
}

// sweepCommands forgets commands that were done long ago.
func sweepCommands(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM command WHERE done_at < clock_timestamp() - $1::interval", commandAge)
	return err
}
