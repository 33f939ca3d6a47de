package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rohrpost/rohrpost/spool"
)

// recordQuery reads messages with what stands in one row about each. The owner is that of the waiting rows, which all
// have the same, or where there are none that of the message.
const recordQuery = "SELECT " + messageColumns + ", " + outcomeColumns + `,
	coalesce(s.subject, ''), coalesce(s.header_message_id, ''), coalesce(s.from_address, ''), s.message_id, coalesce(i.name, '')
FROM any_message m
LEFT JOIN outcome o ON o.message_id = m.id
LEFT JOIN message_search s ON s.message_id = m.id
LEFT JOIN LATERAL (SELECT count(*) AS rows, max(d.owner) AS owner FROM deferred d WHERE d.message_id = m.id) w ON true
LEFT JOIN incarnation i ON o.message_id IS NULL AND i.fenced_at IS NULL
	AND i.id = CASE WHEN w.rows > 0 THEN w.owner ELSE m.owner END
`

// List lists messages, newest first.
func (s *Store) List(ctx context.Context, before spool.ID, limit int) ([]*spool.Record, error) {
	return s.records(ctx, recordQuery+"WHERE m.id < $1 ORDER BY m.id DESC LIMIT $2", before, limit)
}

// Get reads one message with all its rows. Of one whose day was taken out only the outcome and the journal are left.
func (s *Store) Get(ctx context.Context, id spool.ID) (*spool.Record, error) {
	records, err := s.records(ctx, recordQuery+"WHERE m.id = $1", id)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return s.getEnded(ctx, id)
	}
	return records[0], nil
}

// getEnded reads what the journal's tables keep of a message.
func (s *Store) getEnded(ctx context.Context, id spool.ID) (*spool.Record, error) {
	r := &spool.Record{Stored: spool.Stored{Message: spool.Message{ID: id, Accepted: idTime(id)}}}
	var end outcomeFields
	err := s.reads.QueryRow(ctx, "SELECT "+outcomeColumns+`,
			coalesce(s.subject, ''), coalesce(s.header_message_id, ''), coalesce(s.from_address, '')
		FROM outcome o LEFT JOIN message_search s ON s.message_id = o.message_id WHERE o.message_id = $1`, id).
		Scan(append(end.fields(), &r.Search.Subject, &r.Search.HeaderMessageID, &r.Search.From)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, spool.ErrNotFound
	}
	if err != nil {
		return nil, classify(err)
	}
	r.Outcome, err = end.outcome()
	blameMessage(&r.Stored, err)
	l := &loader{byID: map[spool.ID]*spool.Stored{id: &r.Stored}}
	return r, classify(l.attempts(ctx, s.reads, []spool.ID{id}))
}

// FindByHeaderMessageID tells the latest message with a Message-ID.
func (s *Store) FindByHeaderMessageID(ctx context.Context, headerID string) (spool.ID, error) {
	var id spool.ID
	err := s.reads.QueryRow(ctx, `SELECT message_id FROM message_search
		WHERE header_message_id = $1 AND header_message_id <> '' ORDER BY message_id DESC LIMIT 1`, clean(headerID)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, spool.ErrNotFound
	}
	return id, classify(err)
}

// records reads messages in one snapshot: a message must not be seen to end between its rows.
func (s *Store) records(ctx context.Context, sql string, args ...any) ([]*spool.Record, error) {
	var records []*spool.Record
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.reads, options, func(tx pgx.Tx) error {
		var err error
		if records, err = readRecords(ctx, tx, sql, args...); err != nil || len(records) == 0 {
			return err
		}
		// A day that is on its way out shows what is kept of it twice.
		records = slices.CompactFunc(records, func(a, b *spool.Record) bool { return a.ID == b.ID })
		l := &loader{byID: make(map[spool.ID]*spool.Stored, len(records))}
		ids := make([]spool.ID, len(records))
		for i, r := range records {
			ids[i] = r.ID
			l.byID[r.ID] = &r.Stored
		}
		if err := l.attempts(ctx, tx, ids); err != nil {
			return err
		}
		return l.waits(ctx, tx, ids)
	})
	return records, classify(err)
}

func readRecords(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]*spool.Record, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*spool.Record, error) {
		r := &spool.Record{}
		var end outcomeFields
		var search pgtype.UUID
		more := append(end.fields(), &r.Search.Subject, &r.Search.HeaderMessageID, &r.Search.From, &search, &r.OwnerName)
		m, err, decodeErr := scanMessage(row, more...)
		if err != nil {
			return nil, err
		}
		r.Message = m
		blameMessage(&r.Stored, decodeErr)
		if search.Valid {
			r.Search.Message = search.Bytes
		}
		r.Outcome, err = end.outcome()
		blameMessage(&r.Stored, err)
		return r, nil
	})
}
