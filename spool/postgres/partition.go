package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// partitioned lists the tables that have a partition for each day.
var partitioned = []string{messages, "content_chunk", "attempt", "outcome", "message_search", "refusal"}

const messages = "message"

// A row of message is compressed from when it would take more than half of a page; where the server lacks LZ4 only when it would not
// fit into one: the older way takes longer than to write the page. With the default of 2 KB every mail would go through TOAST.
const (
	targetLZ4 = 4064
	targetAny = 8160
)

const (
	day = 24 * time.Hour
	// daysAhead is how many days after today have partitions.
	daysAhead = 2
	// windowBack is how old an id may be that is still accepted. It is made before the content has come, for which a client
	// has an hour. The longer, the more rows an adoption looks at.
	windowBack = 75 * time.Minute
	// windowAhead is how far in the future an id may be: clocks drift.
	windowAhead = 10 * time.Minute
	// orphanAge is how old the id of content must be to be swept: older than any that may still be accepted.
	orphanAge = 2 * windowBack
)

// idAt is the lowest UUIDv7 of a millisecond. (RFC 9562, section 5.7.)
func idAt(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := max(t.UnixMilli(), 0)
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	return id
}

// idTime is the time in a UUIDv7.
func idTime(id uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16))
}

// Maintain makes partitions ahead, takes old ones out, and removes orphaned content, old commands, suspensions and
// idempotency keys.
func (s *Store) Maintain(ctx context.Context, inc spool.Incarnation) error {
	if err := s.makePartitions(ctx); err != nil {
		return err
	}
	if err := s.inTx(ctx, inc, sweepOrphans); err != nil {
		return err
	}
	if err := s.inTx(ctx, inc, sweepCommands); err != nil {
		return err
	}
	if err := s.inTx(ctx, inc, sweepSuspensions); err != nil {
		return err
	}
	if err := s.inTx(ctx, inc, sweepKept); err != nil {
		return err
	}
	if err := s.inTx(ctx, inc, s.sweepKeys); err != nil {
		return err
	}
	return s.retire(ctx, inc)
}

// firstDay is the first day that has partitions in any case: yesterday.
func firstDay(now time.Time) time.Time { return now.UTC().Truncate(day).Add(-day) }

// makePartitions makes the partitions from yesterday to daysAhead, those that are not there. One is made as a table of its
// own and then attached: unlike CREATE TABLE … PARTITION OF, that does not lock out writers.
func (s *Store) makePartitions(ctx context.Context) error {
	var first, end time.Time
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockPartitions); err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		first = firstDay(now)
		end = first.Add((daysAhead + 2) * day)
		for from := first; from.Before(end); from = from.Add(day) {
			for _, table := range partitioned {
				if err := makePartition(ctx, tx, table, from); err != nil {
					return fmt.Errorf("making a partition of %s: %w", table, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windowStart, s.windowEnd = first, end
	return nil
}

func makePartition(ctx context.Context, tx pgx.Tx, table string, from time.Time) error {
	name := pgx.Identifier{table + "_" + from.Format("20060102")}.Sanitize()
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&exists); err != nil || exists {
		return err
	}
	create := "CREATE TABLE " + name + " (LIKE " + table +
		" INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION)"
	if table == messages {
		target, err := rowTarget(ctx, tx)
		if err != nil {
			return err
		}
		create += fmt.Sprintf(" WITH (toast_tuple_target = %d)", target)
	}
	if _, err := tx.Exec(ctx, create); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
		table, name, idAt(from), idAt(from.Add(day))))
	return err
}

// rowTarget is from what size on a row of message is compressed.
func rowTarget(ctx context.Context, tx pgx.Tx) (int, error) {
	var compression string
	err := tx.QueryRow(ctx, "SELECT attcompression::text FROM pg_attribute WHERE attrelid = 'message'::regclass AND attname = 'content'").
		Scan(&compression)
	if compression == "l" {
		return targetLZ4, err
	}
	return targetAny, err
}

// sweepOrphans deletes content whose message never became whole and can't any more.
func sweepOrphans(ctx context.Context, tx pgx.Tx) error {
	var now time.Time
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM content_chunk c
		WHERE c.message_id >= $1 AND c.message_id < $2
		  AND NOT EXISTS (SELECT FROM message m WHERE m.id = c.message_id AND m.owner = c.owner)`,
		idAt(now.Add(-orphanAge-2*day)), idAt(now.Add(-orphanAge)))
	return err
}
