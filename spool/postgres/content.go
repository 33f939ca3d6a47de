package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// errIncomplete means that chunks are missing.
var errIncomplete = errors.New("its content is not complete")

// queueCoverage sees that the content of every message of a batch that is kept in chunks is there, by this transaction or
// an earlier one (P1: envelope and content are committed).
func queueCoverage(q *pgx.Batch, cut []cutContent) {
	for _, c := range cut {
		q.Queue(`SELECT at_offset, at_offset + octet_length(data) FROM content_chunk
			WHERE message_id = $1 AND owner = $2 ORDER BY at_offset`, c.id, int64(c.owner)).
			Query(func(rows pgx.Rows) error {
				covered, err := coverage(rows)
				if err == nil && covered < c.size {
					err = &spool.RowError{Message: c.id, Err: fmt.Errorf("%w: %d of %d octets", errIncomplete, covered, c.size)}
				}
				return err
			})
	}
}

// coverage tells up to where chunks follow each other without a gap. It does not read them: their lengths are known
// without.
func coverage(rows pgx.Rows) (int64, error) {
	var covered int64
	for rows.Next() {
		var from, to int64
		if err := rows.Scan(&from, &to); err != nil {
			return 0, err
		}
		if from <= covered {
			covered = max(covered, to)
		}
	}
	return covered, rows.Err()
}

// ReadContent gives length octets of content from offset on to take. It has a connection only while it reads a chunk, so
// that a slow reader holds none.
func (s *Store) ReadContent(ctx context.Context, id spool.ID, offset, length int64, take func(piece []byte) error) error {
	var owner, size int64
	var inline []byte
	err := s.reads.QueryRow(ctx, "SELECT owner, size, content FROM any_message WHERE id = $1", id).Scan(&owner, &size, &inline)
	if errors.Is(err, pgx.ErrNoRows) {
		return spool.ErrNotFound
	}
	if err != nil {
		return classify(err)
	}
	if offset < 0 || length < 0 || offset > size {
		return fmt.Errorf("postgres: content of %s has %d octets: it can't be read from %d", id, size, offset)
	}
	end := size
	if length > 0 {
		end = min(size, offset+length)
	}
	if inline != nil {
		return take(inline[offset:end])
	}
	for offset < end {
		data, err := chunkAt(ctx, s.reads, id, owner, offset)
		if err != nil {
			return err
		}
		data = data[:min(int64(len(data)), end-offset)]
		if err := take(data); err != nil {
			return err
		}
		offset += int64(len(data))
	}
	return nil
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// chunkAt gives the octets of a chunk from an offset on; at least one.
func chunkAt(ctx context.Context, q querier, id spool.ID, owner, offset int64) ([]byte, error) {
	var data []byte
	err := q.QueryRow(ctx, `SELECT substr(data, ($3 - at_offset + 1)::int) FROM any_chunk
		WHERE message_id = $1 AND owner = $2 AND at_offset <= $3 AND at_offset + octet_length(data) > $3
		ORDER BY at_offset DESC LIMIT 1`, id, owner, offset).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("postgres: message %s: %w: nothing at %d", id, errIncomplete, offset)
	}
	return data, classify(err)
}
