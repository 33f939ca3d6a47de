package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// The kinds of rows, in the order in which they are told within a transaction.
const (
	kindMessage = iota
	kindAttempt
	kindOutcome
	kindAfter // in a cursor: all of the transaction has been told
)

// cursor is a place in the order of events.
type cursor struct {
	tx   uint64 // of the transaction that wrote the row
	kind int
	id   uuid.UUID
}

func (c cursor) String() string {
	return strconv.FormatUint(c.tx, 10) + "." + strconv.Itoa(c.kind) + "." + c.id.String()
}

func parseCursor(text string) (cursor, error) {
	var c cursor
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("%w: %q", spool.ErrBadCursor, text)
	}
	var errs [3]error
	c.tx, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	c.kind, errs[1] = strconv.Atoi(parts[1])
	c.id, errs[2] = uuid.Parse(parts[2])
	if err := errors.Join(errs[:]...); err != nil {
		return c, fmt.Errorf("%w: %q: %w", spool.ErrBadCursor, text, err)
	}
	if c.kind < kindMessage || c.kind > kindAfter {
		return c, fmt.Errorf("%w: %q: there is no kind %d", spool.ErrBadCursor, text, c.kind)
	}
	return c, nil
}

// eventQuery reads rows behind a cursor. Only those of transactions below the snapshot's xmin: all of these have ended,
// and any that commits later has a higher number, so that nothing can appear before a cursor once it was given. The
// price is that a transaction that stays open, in any database of the server, holds events back until it ends.
const eventQuery = `
WITH bound AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin)
SELECT e.tx::text, e.kind, e.id, e.message_id, e.at, e.journal, e.traceparent FROM (
	(SELECT m.tx, 0 AS kind, m.id, m.id AS message_id, m.accepted_at AS at, NULL::bytea AS journal, m.traceparent
	 FROM message m
	 WHERE m.tx >= $1::text::xid8 AND m.tx < (SELECT xmin FROM bound) AND (m.tx > $1::text::xid8 OR (0, m.id) > ($2, $3::uuid))
	 ORDER BY m.tx, m.id LIMIT $4)
	UNION ALL
	(SELECT a.tx, 1, a.id, a.message_id, a.at, a.journal, ''
	 FROM attempt a
	 WHERE a.tx >= $1::text::xid8 AND a.tx < (SELECT xmin FROM bound) AND (a.tx > $1::text::xid8 OR (1, a.id) > ($2, $3::uuid))
	 ORDER BY a.tx, a.id LIMIT $4)
	UNION ALL
	(SELECT o.tx, 2, o.message_id, o.message_id, o.at, o.journal, ''
	 FROM outcome o
	 WHERE o.tx >= $1::text::xid8 AND o.tx < (SELECT xmin FROM bound) AND (o.tx > $1::text::xid8 OR (2, o.message_id) > ($2, $3::uuid))
	 ORDER BY o.tx, o.message_id LIMIT $4)
) e
ORDER BY e.tx, e.kind, e.id LIMIT $4`

// eventAccepted is told once, from the message's own row, though the owner writes it again with its first row.
const eventAccepted = "accepted"

// Events reads events after a cursor. A row whose journal can't be read is told without it.
func (s *Store) Events(ctx context.Context, after string, limit int) ([]spool.StoredEvent, string, error) {
	if after == "" {
		return s.eventsNow(ctx)
	}
	from, err := parseCursor(after)
	if err != nil {
		return nil, "", err
	}
	rows, err := s.reads.Query(ctx, eventQuery, strconv.FormatUint(from.tx, 10), from.kind, from.id, limit)
	if err != nil {
		return nil, "", classify(err)
	}
	events, err := pgx.CollectRows(rows, scanEvent)
	if err != nil {
		return nil, "", classify(err)
	}
	if len(events) > 0 {
		after = events[len(events)-1].Cursor
	}
	return events, after, nil
}

// eventsNow gives the cursor behind every transaction that has ended for certain.
func (s *Store) eventsNow(ctx context.Context) ([]spool.StoredEvent, string, error) {
	var text string
	err := s.reads.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text").Scan(&text)
	if err != nil {
		return nil, "", classify(err)
	}
	xmin, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("postgres: reading xmin: %w", err)
	}
	return nil, cursor{tx: xmin - 1, kind: kindAfter}.String(), nil
}

func scanEvent(row pgx.CollectableRow) (spool.StoredEvent, error) {
	var tx, traceparent string
	var c cursor
	var event spool.StoredEvent
	var journal []byte
	if err := row.Scan(&tx, &c.kind, &c.id, &event.Message, &event.Time, &journal, &traceparent); err != nil {
		return event, err
	}
	var err error
	if c.tx, err = strconv.ParseUint(tx, 10, 64); err != nil {
		return event, err
	}
	event.Cursor = c.String()
	event.Ended = c.kind == kindOutcome
	if c.kind == kindMessage {
		event.Journal = []*mailv1.JournalEntry{acceptedEntry(event.Time, traceparent)}
		return event, nil
	}
	entries, _ := decodeJournal(journal)
	event.Journal = keep(entries, func(e *mailv1.JournalEntry) bool { return e.GetEvent() != eventAccepted })
	return event, nil
}

func acceptedEntry(at time.Time, traceparent string) *mailv1.JournalEntry {
	entry := &mailv1.JournalEntry{Time: timestamppb.New(at), Event: eventAccepted, Stage: "spool"}
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 { // version-traceid-parentid-flags (W3C Trace Context)
		entry.TraceId = parts[1]
	}
	return entry
}
