package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// Commit makes a batch durable.
//
// It copies the rows into their tables first, all in one round trip. Where a row is there already, or where an earlier
// commit of the batch is not known, it inserts what is not there, row by row. That makes a commit whose outcome is not known
// safe to repeat: if the backend of the first is still committing, it holds its keys in the unique indexes, and the second
// waits there until the first has ended. Either way exactly one of them has written the row when the second returns.
func (s *Store) Commit(ctx context.Context, inc spool.Incarnation, batch *spool.Batch) error {
	ctx, span := s.tracer.Start(ctx, "postgres.commit")
	defer span.End()
	span.SetAttributes(attribute.Int("rohrpost.batch.messages", len(batch.Messages)),
		attribute.Int("rohrpost.batch.attempts", len(batch.Attempts)),
		attribute.Int("rohrpost.batch.outcomes", len(batch.Outcomes)))

	again := s.isUnknown(batch)
	err := s.commit(ctx, inc, batch, again)
	switch {
	case err == nil, isRowError(err), errors.Is(err, spool.ErrFenced):
		s.setUnknown(batch, false)
	case errors.Is(err, spool.ErrCommitUnknown):
		s.setUnknown(batch, true)
	case again: // this try wrote nothing, but what became of the last one is still open
		err = fmt.Errorf("%w: %w", spool.ErrCommitUnknown, err)
	}
	if err != nil {
		span.RecordError(err)
	}
	return err
}

func (s *Store) commit(ctx context.Context, inc spool.Incarnation, batch *spool.Batch, again bool) error {
	rows, err := encode(inc, batch)
	if err != nil {
		return err
	}
	if !again {
		err = s.inBatch(ctx, inc, rows, func(q *pgx.Batch) { queueChanges(q, inc, batch) })
	}
	if again || sqlState(err) == stateUniqueViolation {
		err = s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
			write := writeBatch
			if again {
				write = repeatBatch
			}
			if err := write(ctx, tx, inc, rows, batch); err != nil {
				return err
			}
			if err := refuseForeign(ctx, tx, inc, rows.messages.messages, again); err != nil {
				return err
			}
			// A transaction that changed nothing commits without a flush and without waiting for a standby. This
			// record makes it do both, and so confirms what the first one wrote.
			_, err := tx.Exec(ctx, "SELECT pg_logical_emit_message(true, 'rohrpost', '')")
			return err
		})
	}
	if err == nil && len(batch.Chunks) > 0 {
		_ = s.opts.Faults.Reach(fault.ContentDurable) // it stalls or exits, but can't fail
	}
	if unknown := s.reachDone(err); unknown != nil {
		return unknown
	}
	if isDataError(err) && !isRowError(err) {
		return s.blame(ctx, inc, batch, err)
	}
	return err
}

// reachDone tells the faults of tests that a COMMIT went through.
func (s *Store) reachDone(err error) error {
	if err != nil {
		return nil
	}
	if err := s.opts.Faults.Reach(fault.CommitDone); err != nil {
		return fmt.Errorf("%w: %w", spool.ErrCommitUnknown, err)
	}
	return nil
}

// writeBatch writes what is not there yet.
func writeBatch(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, rows *encoded, batch *spool.Batch) error {
	if _, err := appendRows(ctx, tx, rows); err != nil {
		return err
	}
	return change(ctx, tx, inc, rows, batch)
}

// repeatBatch is writeBatch for a batch whose last commit is not known. The rows of a batch become durable together: where
// it appends some and all of them are there, so are its changes, and others may have changed the working set since. A
// message that it let go may have been claimed, and must not be let go once more (P4).
func repeatBatch(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, rows *encoded, batch *spool.Batch) error {
	wrote, err := appendRows(ctx, tx, rows)
	if err != nil {
		return err
	}
	if wrote == 0 && rows.len() > 0 {
		return nil
	}
	return change(ctx, tx, inc, rows, batch)
}

func appendRows(ctx context.Context, tx pgx.Tx, rows *encoded) (int64, error) {
	var wrote int64
	for _, set := range rows.all() {
		if set.len() == 0 {
			continue
		}
		n, err := set.insertNew(ctx, tx)
		if err != nil {
			return 0, err
		}
		wrote += n
	}
	return wrote, nil
}

func change(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, rows *encoded, batch *spool.Batch) error {
	q := &pgx.Batch{}
	queueChanges(q, inc, batch)
	queueCoverage(q, rows.cut)
	return tx.SendBatch(ctx, q).Close()
}

func (e *encoded) len() int {
	n := 0
	for _, set := range e.all() {
		n += set.len()
	}
	return n
}

// refuseForeign finds a message of the batch whose row was there already and is not the caller's to send: see
// [spool.ErrExists]. Where the batch is committed again, what the row's own transaction wrote besides does not count.
func refuseForeign(ctx context.Context, tx pgx.Tx, inc spool.Incarnation, ids []spool.ID, again bool) error {
	if len(ids) == 0 {
		return nil
	}
	var foreign spool.ID
	var settled, withdrawn bool
	err := tx.QueryRow(ctx, `SELECT m.id,
			EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id AND o.states && ARRAY['withdrawn']),
			EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)
				OR EXISTS (SELECT FROM attempt a WHERE a.message_id = m.id)
				OR EXISTS (SELECT FROM deferred d WHERE d.message_id = m.id)
		FROM message m WHERE m.id = ANY ($1)
		AND (m.owner <> $2 OR NOT $3 AND m.tx <> pg_current_xact_id() AND (
			EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)
			OR EXISTS (SELECT FROM deferred d WHERE d.message_id = m.id AND d.owner IS DISTINCT FROM $2)))
		LIMIT 1`, ids, int64(inc), again).Scan(&foreign, &withdrawn, &settled)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	switch {
	case err != nil:
		return err
	case withdrawn:
		return &spool.RowError{Message: foreign, Err: spool.ErrWithdrawn}
	case settled:
		return &spool.RowError{Message: foreign, Err: spool.ErrSettled}
	default:
		return &spool.RowError{Message: foreign, Err: spool.ErrExists}
	}
}

// blame finds the message whose rows the database refuses: it writes those of each message alone, in a transaction that
// is rolled back. It happens rarely enough not to be clever.
func (s *Store) blame(ctx context.Context, inc spool.Incarnation, batch *spool.Batch, cause error) error {
	culprit := &spool.RowError{Err: cause}
	errDone := errors.New("done")
	err := s.inTx(ctx, inc, func(ctx context.Context, tx pgx.Tx) error {
		for _, id := range messagesOf(batch) {
			part := partOf(batch, id)
			rows, err := encode(inc, part)
			if err != nil {
				return err
			}
			sub, err := tx.Begin(ctx) // a savepoint
			if err != nil {
				return err
			}
			err = writeBatch(ctx, sub, inc, rows, part)
			if rollbackErr := sub.Rollback(ctx); rollbackErr != nil {
				return rollbackErr
			}
			if isDataError(err) || isRowError(err) {
				culprit = &spool.RowError{Message: id, Err: err}
				return errDone
			}
			if err != nil {
				return err
			}
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		return culprit
	}
	return err
}

// messagesOf lists the messages that a batch is about.
func messagesOf(b *spool.Batch) []spool.ID {
	var ids []spool.ID
	seen := map[spool.ID]bool{}
	add := func(id spool.ID) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for i := range b.Chunks {
		add(b.Chunks[i].Message)
	}
	for i := range b.Messages {
		add(b.Messages[i].ID)
	}
	for i := range b.Attempts {
		add(b.Attempts[i].Message)
	}
	for i := range b.Outcomes {
		add(b.Outcomes[i].Message)
	}
	for i := range b.Waits {
		add(b.Waits[i].Message)
	}
	for i := range b.Searches {
		add(b.Searches[i].Message)
	}
	for i := range b.Refusals {
		add(b.Refusals[i].Message)
	}
	return ids
}

// partOf is what a batch says about one message, without deletions: they can't be refused.
func partOf(b *spool.Batch, id spool.ID) *spool.Batch {
	return &spool.Batch{
		Chunks:   keep(b.Chunks, func(c spool.Chunk) bool { return c.Message == id }),
		Messages: keep(b.Messages, func(m spool.Message) bool { return m.ID == id }),
		Attempts: keep(b.Attempts, func(a spool.Attempt) bool { return a.Message == id }),
		Outcomes: keep(b.Outcomes, func(o spool.Outcome) bool { return o.Message == id }),
		Waits:    keep(b.Waits, func(w spool.Wait) bool { return w.Message == id }),
		Searches: keep(b.Searches, func(s spool.Search) bool { return s.Message == id }),
		Refusals: keep(b.Refusals, func(r spool.Refusal) bool { return r.Message == id }),
	}
}

func keep[T any](all []T, fits func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return !fits(t) })
}

func isRowError(err error) bool {
	var row *spool.RowError
	return errors.As(err, &row)
}

func (s *Store) isUnknown(b *spool.Batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, unknown := s.unknown[b]
	return unknown
}

func (s *Store) setUnknown(b *spool.Batch, unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unknown {
		s.unknown[b] = struct{}{}
		return
	}
	delete(s.unknown, b)
}
