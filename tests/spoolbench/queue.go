package spoolbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/postgres"
	"github.com/rohrpost/rohrpost/tests/load/latency"
)

// queue is the waiting rows of a spool's database, as seen past the spool.
type queue struct{ conn *pgx.Conn }

func openQueue(ctx context.Context, url string) (*queue, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return &queue{conn: conn}, nil
}

func (q *queue) close(ctx context.Context) { _ = q.conn.Close(context.WithoutCancel(ctx)) } // everything is committed

// empty takes everything away that a spool has left, but for one message, which it tells. No spool may run.
func (q *queue) empty(ctx context.Context) error {
	for _, statement := range []string{
		"CREATE TABLE sample AS SELECT * FROM message WHERE verdict IS NULL LIMIT 1",
		"TRUNCATE message, content_chunk, attempt, outcome, message_search, deferred",
	} {
		if _, err := q.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("emptying the queue: %w", err)
		}
	}
	return nil
}

// fill makes messages that were deferred: their rows as the spool wrote one, at as many domains as other messages have, due over
// the next days. They were accepted a minute ago, one each microsecond; an id is a UUIDv7 of that time. (RFC 9562, section 5.7.)
func (q *queue) fill(ctx context.Context, n int) error {
	const piece = 50_000 // of a transaction
	for from := 0; from < n; from += piece {
		_, err := q.conn.Exec(ctx, `
			WITH new AS MATERIALIZED (
				SELECT i, (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 60000 + i / 1000), 12, '0') || '7' ||
					substr(md5(random()::text), 1, 3) || '8' || substr(md5(i::text), 1, 15))::uuid AS id
				FROM generate_series($1::int, $2::int) i
			), written AS (
				INSERT INTO message (id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits, traceparent, tracestate, content)
				SELECT new.id, s.owner, s.sender, s.recipients, now(), s.size, s.content_hash, s.envelope, s.edits, s.traceparent, s.tracestate, s.content
				FROM sample s, new
			)
			INSERT INTO deferred (message_id, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply)
			SELECT id, 'd' || i % $3 || '.example', NULL, 'retry', '{0}', 1, now() + interval '1 hour' + random() * interval '2 days',
				now() + interval '5 days', ''
			FROM new`, from, min(from+piece, n)-1, domains)
		if err != nil {
			return fmt.Errorf("filling the queue: %w", err)
		}
	}
	for _, statement := range []string{"ANALYZE deferred", "ANALYZE message", "CHECKPOINT"} {
		if _, err := q.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("filling the queue: %w", err)
		}
	}
	return nil
}

// due makes some of the messages due that wait for later, one after another at a distance. It tells when each is.
func (q *queue) due(ctx context.Context, n int, first, distance time.Duration) (map[string]time.Time, error) {
	rows, err := q.conn.Query(ctx, `
		WITH chosen AS (
			SELECT message_id, row_number() OVER () - 1 AS i FROM (
				SELECT message_id FROM deferred WHERE owner IS NULL AND next_at > now() + interval '10 minutes'
				ORDER BY message_id DESC LIMIT $1
			) c
		)
		UPDATE deferred d SET next_at = clock_timestamp() + $2::interval + c.i * $3::interval FROM chosen c
		WHERE d.message_id = c.message_id RETURNING d.message_id::text, d.next_at`, n, first, distance)
	if err != nil {
		return nil, fmt.Errorf("making messages due: %w", err)
	}
	all := map[string]time.Time{}
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		all[id] = at
		return nil
	})
	if err == nil && len(all) != n {
		err = errShort("messages due:", int64(len(all)))
	}
	return all, err
}

// claims tells how long a claim takes that finds a few messages among all that wait: by the spool's own store, as an incarnation
// of its own that gives them back at its end. No spool may run.
func (q *queue) claims(ctx context.Context, url string, n int) (_ latency.Summary, err error) {
	store, err := postgres.Open(ctx, postgres.Options{URL: url})
	if err != nil {
		return latency.Summary{}, err
	}
	defer store.Close()
	lease, err := store.Register(ctx, spool.Registration{Name: "claims", Lease: time.Hour})
	if err != nil {
		return latency.Summary{}, err
	}
	defer func() {
		_, handErr := store.HandOver(context.WithoutCancel(ctx), lease.Incarnation)
		err = errors.Join(err, handErr)
	}()
	const few = 5
	var took latency.Recorder
	for range n {
		if _, err := q.due(ctx, few, -time.Second, 0); err != nil {
			return latency.Summary{}, err
		}
		begun := time.Now()
		found, err := store.Claim(ctx, lease.Incarnation, spool.ClaimLimits{Messages: 256, PerDestination: 40})
		if err != nil {
			return latency.Summary{}, err
		}
		took.Record(0, time.Since(begun))
		if len(found) != few {
			return latency.Summary{}, fmt.Errorf("a claim found %d messages where %d were due", len(found), few)
		}
	}
	return took.Summary(), nil
}
