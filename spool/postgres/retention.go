package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// Retention says how long days of mail are kept once they are over. Zero values keep them for ever.
type Retention struct {
	// Content is how long messages are kept, from the end of the day (UTC) on which they were accepted: at least a day.
	// What has not ended by then stays until it has.
	Content time.Duration
	// Journal is how long attempts and outcomes are kept: not less than Content, and longer than a message can live.
	Journal time.Duration
	// Bytes is how much all days may take, indexes included. Past it the oldest day's messages go before their time, but
	// not today's nor yesterday's: from there a message may still be under way to us.
	Bytes int64
}

const (
	// retireTimeout bounds the statements that take a day out: one copies what has not ended, and detaching waits for
	// all queries that have begun before.
	retireTimeout = 5 * time.Minute
	// retired is the comment of a day's table from when what has not ended is copied. Only what has it is ever dropped: an
	// operator may detach a day too, to archive it, with mail in it that has not ended.
	retired = "rohrpost: is being taken out"
)

// contentTables go first, with the journal's following when it is old enough. (design.md section 5.)
var (
	contentTables = []string{"content_chunk", "message"}
	journalTables = []string{"attempt", "outcome", "message_search", "refusal"}
)

// partition is one day of a table.
type partition struct {
	table, name string
	day         time.Time
	bytes       int64
	pending     bool // its detachment began and did not end
	ours        bool // it has our comment
}

// end is when the day is over.
func (p *partition) end() time.Time { return p.day.Add(day) }

// retire takes days out that are too old or too much. Nothing is deleted row by row: what has not ended is copied to the
// kept tables, then the day is detached, without locking out anybody, and dropped. One spool does it at a time.
//
// It has a connection of its own, since it may wait for minutes, as for a dump. Where the context ends the connection is
// closed: the server sees that within a second and breaks off.
func (s *Store) retire(ctx context.Context, inc spool.Incarnation) error {
	if s.opts.Retention == (Retention{}) {
		return nil
	}
	conn, err := s.connectRetiring(ctx, inc)
	if err != nil {
		return classify(err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.PgConn().Conn().Close() })()
	ctx = context.WithoutCancel(ctx)
	defer func() { _ = conn.Close(ctx) }()
	if err := setDeadline(conn, time.Now().Add(retireTimeout)); err != nil {
		return classify(err)
	}
	var alone bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lockRetention).Scan(&alone); err != nil || !alone {
		return classify(err)
	}
	err = s.retireDays(ctx, conn, inc)
	_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", lockRetention)
	return classify(errors.Join(err, unlockErr))
}

// connectRetiring makes a connection like those of the pool, by which the server looks while it waits whether we are there.
func (s *Store) connectRetiring(ctx context.Context, inc spool.Incarnation) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CommitTimeout)
	defer cancel()
	config := s.writes.Config().ConnConfig
	config.RuntimeParams["application_name"] = appName(inc)
	config.RuntimeParams["client_connection_check_interval"] = "1s"
	return pgx.ConnectConfig(ctx, config)
}

func (s *Store) retireDays(ctx context.Context, conn *pgx.Conn, inc spool.Incarnation) error {
	if err := s.dropDetached(ctx, conn); err != nil {
		return err
	}
	days, err := partitions(ctx, conn)
	if err != nil {
		return err
	}
	var now time.Time
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	oldest, err := oldestUnfinished(ctx, conn, now)
	if err != nil {
		return err
	}
	excess := s.excess(days)
	for i := range days {
		p := &days[i]
		switch {
		case p.pending && !p.ours:
			s.leaveAlone(ctx, p.name)
			continue
		case p.pending: // goes on with what began
		case !p.day.Before(firstDay(now)):
			continue // a message of it may still be accepted, and Maintain would make it anew
		case slices.Contains(contentTables, p.table):
			if excess <= 0 && !isOver(now, p, s.opts.Retention.Content) {
				continue
			}
		case !isOver(now, p, s.opts.Retention.Journal) || p.end().After(oldest):
			continue
		}
		if err := s.retireDay(ctx, conn, inc, p); err != nil {
			return fmt.Errorf("taking out %s: %w", p.name, err)
		}
		excess -= p.bytes
		s.log.InfoContext(ctx, "A day was taken out", "partition", p.name, "bytes", p.bytes)
	}
	return nil
}

// isOver tells whether a day has been kept long enough; never where the time is 0.
func isOver(now time.Time, p *partition, keep time.Duration) bool {
	return keep > 0 && now.Sub(p.end()) >= keep
}

// excess is how many octets there are too many.
func (s *Store) excess(days []partition) int64 {
	if s.opts.Retention.Bytes == 0 {
		return 0
	}
	excess := -s.opts.Retention.Bytes
	for i := range days {
		excess += days[i].bytes
	}
	return excess
}

// partitions lists all days of all tables, the oldest first, and within a day content before messages.
func partitions(ctx context.Context, conn *pgx.Conn) ([]partition, error) {
	rows, err := conn.Query(ctx, `SELECT p.relname, c.relname, pg_total_relation_size(c.oid), i.inhdetachpending,
			coalesce(obj_description(c.oid, 'pg_class') = $2, false)
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
		WHERE p.oid = ANY ($1::text[]::regclass[])
		ORDER BY right(c.relname, 8), p.relname`, slices.Concat(contentTables, journalTables), retired)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		if err := row.Scan(&p.table, &p.name, &p.bytes, &p.pending, &p.ours); err != nil {
			return p, err
		}
		p.day, err = dayOf(p.table, p.name)
		return p, err
	})
	return all, err
}

func dayOf(table, name string) (time.Time, error) {
	date, ok := strings.CutPrefix(name, table+"_")
	if !ok {
		return time.Time{}, fmt.Errorf("postgres: the partition %s of %s has another name than ours", name, table)
	}
	return time.Parse("20060102", date)
}

// oldestUnfinished is a time before which all messages were accepted that have not ended: their attempts and the place of
// their outcome must stay.
func oldestUnfinished(ctx context.Context, conn *pgx.Conn, now time.Time) (time.Time, error) {
	oldest := idAt(now)
	err := conn.QueryRow(ctx, `SELECT id FROM (
			(SELECT message_id AS id FROM deferred ORDER BY message_id LIMIT 1)
			UNION ALL (SELECT id FROM message_kept ORDER BY id LIMIT 1)
			UNION ALL (SELECT low_water FROM incarnation WHERE adopted_at IS NULL ORDER BY low_water LIMIT 1)
			UNION ALL SELECT $1::uuid
		) AS unfinished ORDER BY id LIMIT 1`, oldest).Scan(&oldest)
	return idTime(oldest), err
}

// retireDay takes one day of one table out. Each step may be the last before a crash: the next time goes on from there.
func (s *Store) retireDay(ctx context.Context, conn *pgx.Conn, inc spool.Incarnation, p *partition) error {
	name, table := pgx.Identifier{p.name}.Sanitize(), pgx.Identifier{p.table}.Sanitize()
	detach := " CONCURRENTLY"
	if p.pending {
		detach = " FINALIZE"
	} else if err := s.keepUnfinished(ctx, conn, inc, p); err != nil {
		return err
	}
	if err := setDeadline(conn, time.Now().Add(retireTimeout)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "ALTER TABLE "+table+" DETACH PARTITION "+name+detach); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "DROP TABLE "+name)
	return err
}

// keepUnfinished copies what has not ended, and marks the day's table as one that may be dropped.
func (s *Store) keepUnfinished(ctx context.Context, conn *pgx.Conn, inc spool.Incarnation, p *partition) error {
	if err := setDeadline(conn, time.Now().Add(retireTimeout)); err != nil {
		return err
	}
	name := pgx.Identifier{p.name}.Sanitize()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.checkFence(ctx, tx, inc); err != nil {
			return err
		}
		if keep, ok := keepers[p.table]; ok {
			if _, err := tx.Exec(ctx, fmt.Sprintf(keep, name), idAt(p.day), idAt(p.end())); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "COMMENT ON TABLE "+name+" IS '"+retired+"'")
		return err
	})
}

// keepers copy what has not ended from a day. The day's messages can't grow any more; one that ends in between is kept
// for nothing, and swept.
var keepers = map[string]string{
	"message": `INSERT INTO message_kept (id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits,
			verdict, traceparent, tracestate, content, tx)
		SELECT m.id, m.owner, m.sender, m.recipients, m.accepted_at, m.size, m.content_hash, m.envelope, m.edits,
			m.verdict, m.traceparent, m.tracestate, m.content, m.tx
		FROM %s m WHERE NOT EXISTS (
			SELECT FROM outcome o WHERE o.message_id = m.id AND o.message_id >= $1 AND o.message_id < $2)
		ON CONFLICT DO NOTHING`,
	"content_chunk": `INSERT INTO content_chunk_kept (message_id, owner, at_offset, seq, data)
		SELECT c.message_id, c.owner, c.at_offset, c.seq, c.data
		FROM %s c WHERE EXISTS (
			SELECT FROM any_message m WHERE m.id = c.message_id AND m.owner = c.owner AND m.id >= $1 AND m.id < $2)
		AND NOT EXISTS (
			SELECT FROM outcome o WHERE o.message_id = c.message_id AND o.message_id >= $1 AND o.message_id < $2)
		ON CONFLICT DO NOTHING`,
}

// dropDetached drops days that we detached and did not drop, as a spool that died in between. What somebody else has
// detached stays.
func (s *Store) dropDetached(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT c.relname, coalesce(obj_description(c.oid, 'pg_class') = $2, false) FROM pg_class c
		WHERE c.relkind = 'r' AND NOT c.relispartition
		  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'message'::regclass)
		  AND c.relname ~ ('^(' || array_to_string($1::text[], '|') || ')_[0-9]{8}$')`,
		slices.Concat(contentTables, journalTables), retired)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.name, &p.ours)
		return p, err
	})
	if err != nil {
		return err
	}
	for _, p := range tables {
		if !p.ours {
			s.leaveAlone(ctx, p.name)
			continue
		}
		if _, err := conn.Exec(ctx, "DROP TABLE "+pgx.Identifier{p.name}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// leaveAlone says once of a table that somebody else has detached it.
func (s *Store) leaveAlone(ctx context.Context, name string) {
	s.mu.Lock()
	told := s.foreign[name]
	s.foreign[name] = true
	s.mu.Unlock()
	if !told {
		s.log.WarnContext(ctx, "A day was detached by somebody else and is left alone: its mail is not sent", "table", name)
	}
}

// sweepKept deletes messages that outlived their day and have ended: those few that are kept at all.
func sweepKept(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{
		"DELETE FROM content_chunk_kept c WHERE EXISTS (SELECT FROM outcome o WHERE o.message_id = c.message_id)",
		"DELETE FROM message_kept k WHERE EXISTS (SELECT FROM outcome o WHERE o.message_id = k.id)",
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
