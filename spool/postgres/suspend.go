package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
)

// Suspend makes a suspension durable and tells the spools. Of the suspension, pattern, reason and who ordered it count; it
// ends after length, or never by itself where that is 0. One of the same pattern is replaced. [spool.ErrFull] where there are
// [spool.MaxSuspensions] others.
func (s *Store) Suspend(ctx context.Context, want spool.Suspension, length time.Duration) (spool.Suspension, error) {
	var lasts *time.Duration
	if length > 0 {
		lasts = &length
	}
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		var until *time.Time
		err := tx.QueryRow(ctx, `INSERT INTO suspension (pattern, until_at, reason, by_whom)
			SELECT $1, clock_timestamp() + $2::interval, $3, $4
			WHERE (SELECT count(*) FROM suspension WHERE pattern <> $1 AND (until_at IS NULL OR until_at > clock_timestamp())) < $5
			ON CONFLICT (pattern) DO UPDATE SET until_at = EXCLUDED.until_at, reason = EXCLUDED.reason,
				by_whom = EXCLUDED.by_whom, since_at = EXCLUDED.since_at
			RETURNING until_at, since_at`,
			want.Pattern.Domain(), lasts, clean(want.Reason), clean(want.By), spool.MaxSuspensions).Scan(&until, &want.Since)
		if until != nil {
			want.Until = *until
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return spool.Suspension{}, spool.ErrFull
	}
	if err != nil {
		return spool.Suspension{}, err
	}
	return want, s.notifySpools(ctx)
}

// Resume ends the suspension of a pattern and tells the spools. [spool.ErrNotFound] where that very pattern is not suspended.
func (s *Store) Resume(ctx context.Context, p pattern.Pattern) error {
	var found int64
	err := s.inTx(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM suspension WHERE pattern = $1 AND (until_at IS NULL OR until_at > clock_timestamp())",
			p.Domain())
		found = tag.RowsAffected()
		return err
	})
	if err == nil && found == 0 {
		err = spool.ErrNotFound
	}
	if err != nil {
		return err
	}
	return s.notifySpools(ctx)
}

// Suspensions lists the suspensions that have not ended, by pattern.
func (s *Store) Suspensions(ctx context.Context) ([]spool.Suspension, error) {
	rows, err := s.reads.Query(ctx, `SELECT pattern, until_at, reason, by_whom, since_at FROM suspension
		WHERE until_at IS NULL OR until_at > clock_timestamp() ORDER BY pattern`)
	if err != nil {
		return nil, classify(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (spool.Suspension, error) {
		var found spool.Suspension
		var text string
		var until *time.Time
		if err := row.Scan(&text, &until, &found.Reason, &found.By, &found.Since); err != nil {
			return found, err
		}
		if until != nil {
			found.Until = *until
		}
		found.Pattern, err = pattern.Parse(text)
		return found, err
	})
	return list, classify(err)
}

// Queues tells for which destinations most messages wait.
func (s *Store) Queues(ctx context.Context, limit int) ([]spool.Queue, error) {
	rows, err := s.reads.Query(ctx, `SELECT destination, messages, recipients, due, next_at, now() - longest_wait, coalesce(last_reply, '')
		FROM queue_by_destination WHERE destination NOT LIKE '!%' ORDER BY messages DESC, destination LIMIT $1`, limit)
	if err != nil {
		return nil, classify(err)
	}
	queues, err := pgx.CollectRows(rows, pgx.RowToStructByPos[spool.Queue])
	return queues, classify(err)
}

// notifySpools tells the spools that there is something new for them, see [Store.HearCommands].
func (s *Store) notifySpools(ctx context.Context) error {
	_, err := s.reads.Exec(ctx, "SELECT pg_notify($1, '')", commandChannel)
	return classify(err)
}

// without splits what is not to be claimed into names of destinations and their ends: the end of "*.example.org" is
// ".example.org", and that of "*" is empty.
func without(limits spool.ClaimLimits) (names, ends []string) {
	names, ends = notNil(limits.Without), []string{}
	for _, p := range limits.Suspended {
		switch end, below := strings.CutPrefix(p.Domain(), "*"); {
		case p.Local() != "":
		case below:
			ends = append(ends, end)
		default:
			names = append(names[:len(names):len(names)], end)
		}
	}
	return names, ends
}

// wanted is the condition for rows of d.destination to be claimed: $1 and $2 are what [without] gave. Rows of no destination
// are, whatever is suspended. Destinations are in lower case, as these names and ends are.
const wanted = `d.destination <> ALL ($1) AND (d.destination LIKE '!%' OR NOT EXISTS (
	SELECT FROM unnest($2::text[]) AS e (e) WHERE right(d.destination, length(e.e)) = e.e AND length(d.destination) > length(e.e)))`

// pickExpired names messages with a recipient whose time is up: they are ended though their destination is suspended.
func pickExpired(ctx context.Context, tx pgx.Tx, limit int) ([]spool.ID, error) {
	rows, err := tx.Query(ctx, `SELECT message_id FROM deferred
		WHERE owner IS NULL AND expires_at <= statement_timestamp() AND next_at <= statement_timestamp() ORDER BY expires_at LIMIT $1`, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[spool.ID])
}

// sweepSuspensions forgets suspensions that ended long ago.
func sweepSuspensions(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM suspension WHERE until_at < clock_timestamp() - $1::interval", commandAge)
	return err
}
