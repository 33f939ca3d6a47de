package postgres

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rohrpost/rohrpost/spool"
)

// queueChanges queues the statements for everything of a batch that is not appended: first the waiting rows that are written,
// then those that go, then those that are released. Nothing is written for a message that ends in the same batch.
func queueChanges(q *pgx.Batch, inc spool.Incarnation, batch *spool.Batch) {
	ended := map[spool.ID]bool{}
	for i := range batch.Outcomes {
		ended[batch.Outcomes[i].Message] = true
	}
	waits, owned := lastWaits(batch.Waits, ended)
	queueWaits(q, inc, waits)
	queueOwners(q, inc, owned)
	if len(batch.Unwaits) > 0 {
		ids, destinations := make([]spool.ID, len(batch.Unwaits)), make([]string, len(batch.Unwaits))
		for i, key := range batch.Unwaits {
			ids[i], destinations[i] = key.Message, clean(key.Destination)
		}
		q.Queue(`DELETE FROM deferred d USING unnest($1::uuid[], $2::text[]) AS k (message_id, destination)
			WHERE d.message_id = k.message_id AND d.destination = k.destination
			  AND (d.owner IS NULL OR d.owner = $3)`, ids, destinations, int64(inc))
	}
	if len(ended) > 0 && (len(batch.Unwaits) > 0 || len(batch.Waits) > 0) {
		ids := make([]spool.ID, 0, len(ended))
		for id := range ended {
			ids = append(ids, id)
		}
		q.Queue("DELETE FROM deferred WHERE message_id = ANY ($1)", ids)
	}
	if len(batch.Releases) > 0 {
		q.Queue("UPDATE deferred SET owner = NULL WHERE message_id = ANY ($1) AND owner = $2", batch.Releases, int64(inc))
	}
	queueDone(q, batch.Commands)
	queueSearches(q, batch.Searches)
}

// lastWaits gives the last row of each key, in the order of the keys so that two transactions lock in the same order,
// and whether each message is owned afterwards.
func lastWaits(all []spool.Wait, ended map[spool.ID]bool) ([]spool.Wait, map[spool.ID]bool) {
	last := map[spool.WaitKey]spool.Wait{}
	owned := map[spool.ID]bool{}
	for _, w := range all {
		if ended[w.Message] {
			continue
		}
		w.Destination = clean(w.Destination) // two that become one would be two changes of one row
		last[w.WaitKey] = w
		owned[w.Message] = w.Owned
	}
	waits := make([]spool.Wait, 0, len(last))
	for _, w := range last {
		waits = append(waits, w)
	}
	slices.SortFunc(waits, func(a, b spool.Wait) int {
		return cmp.Or(bytes.Compare(a.Message[:], b.Message[:]), cmp.Compare(a.Destination, b.Destination))
	})
	return waits, owned
}

// integersText is an array as PostgreSQL reads it: those within an array would have to be of one length, and travel as text.
func integersText(values []int32) string {
	text := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(v), 10)
	}
	return string(append(text, '}'))
}

// queueWaits writes waiting rows, but never over one that another incarnation owns (P4).
func queueWaits(q *pgx.Batch, inc spool.Incarnation, waits []spool.Wait) {
	if len(waits) == 0 {
		return
	}
	n := len(waits)
	ids, destinations, owned := make([]pgtype.UUID, n), make([]string, n), make([]bool, n)
	reasons, recipients, attempts := make([]string, n), make([]string, n), make([]int32, n)
	next, expires, replies := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]string, n)
	for i, w := range waits {
		ids[i], destinations[i], owned[i] = pgtype.UUID{Bytes: w.Message, Valid: true}, clean(w.Destination), w.Owned
		reasons[i], recipients[i], attempts[i] = string(w.Reason), integersText(w.Recipients), w.Attempts
		next[i], expires[i], replies[i] = never(w.NextAt), never(w.ExpiresAt), replyText(w.LastReply)
	}
	q.Queue(`INSERT INTO deferred (message_id, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply)
		SELECT message_id, destination, CASE WHEN owned THEN $10::bigint END, reason, recipients::integer[], attempts, next_at, expires_at, last_reply
		FROM unnest($1::uuid[], $2::text[], $3::boolean[], $4::text[], $5::text[], $6::integer[], $7::timestamptz[], $8::timestamptz[], $9::text[])
			AS row (message_id, destination, owned, reason, recipients, attempts, next_at, expires_at, last_reply)
		ON CONFLICT (message_id, destination) DO UPDATE SET
			owner = EXCLUDED.owner, reason = EXCLUDED.reason, recipients = EXCLUDED.recipients, attempts = EXCLUDED.attempts,
			next_at = EXCLUDED.next_at, expires_at = EXCLUDED.expires_at, last_reply = EXCLUDED.last_reply
		WHERE deferred.owner IS NULL OR deferred.owner = $10`,
		ids, destinations, owned, reasons, recipients, attempts, next, expires, replies, int64(inc))
}

// queueOwners gives all rows of a message the owner that its last written row says.
func queueOwners(q *pgx.Batch, inc spool.Incarnation, owned map[spool.ID]bool) {
	var mine, free []spool.ID
	for id, isMine := range owned {
		if isMine {
			mine = append(mine, id)
		} else {
			free = append(free, id)
		}
	}
	if len(mine) > 0 {
		q.Queue("UPDATE deferred SET owner = $2 WHERE message_id = ANY ($1) AND owner IS NULL", mine, int64(inc))
	}
	if len(free) > 0 {
		q.Queue("UPDATE deferred SET owner = NULL WHERE message_id = ANY ($1) AND owner = $2", free, int64(inc))
	}
}

func queueSearches(q *pgx.Batch, searches []spool.Search) {
	if len(searches) == 0 {
		return
	}
	ids := make([]spool.ID, len(searches))
	subjects, headerIDs, from := make([]string, len(searches)), make([]string, len(searches)), make([]string, len(searches))
	for i, s := range searches {
		ids[i], subjects[i], headerIDs[i], from[i] = s.Message, clean(s.Subject), clean(s.HeaderMessageID), clean(s.From)
	}
	q.Queue(`INSERT INTO message_search (message_id, subject, header_message_id, from_address)
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
		ON CONFLICT (message_id) DO NOTHING`, ids, subjects, headerIDs, from)
}
