package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"google.golang.org/protobuf/encoding/protodelim"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
	"github.com/rohrpost/rohrpost/spool"
)

// messageColumns are what scanMessage reads, of a table called m.
const messageColumns = `m.id, m.owner, m.accepted_at, m.size, m.content_hash, m.envelope, m.edits, m.verdict,
	m.traceparent, m.tracestate`

// scanMessage reads messageColumns and then more. The first error is the database's; the second one, of decoding, hurts
// this message alone.
func scanMessage(row pgx.Row, more ...any) (m spool.Message, err, decodeErr error) {
	var owner int64
	var envelope, edits, verdict []byte
	trace := &mailv1.TraceContext{}
	fields := []any{
		&m.ID, &owner, &m.Accepted, &m.Size, &m.Hash, &envelope, &edits, &verdict, &trace.Traceparent, &trace.Tracestate,
	}
	if err := row.Scan(append(fields, more...)...); err != nil {
		return m, err, nil
	}
	m.Owner = spool.Incarnation(owner)
	m.Trace = trace
	m.Envelope = &mailv1.Envelope{}
	if err := wire.Unmarshal(envelope, m.Envelope); err != nil {
		return m, nil, fmt.Errorf("its envelope can't be read: %w", err)
	}
	if len(m.Envelope.GetRecipients()) == 0 {
		return m, nil, errors.New("its envelope can't be read: it has no recipient")
	}
	var list mailv1.Verdict
	if err := wire.Unmarshal(edits, &list); err != nil {
		return m, nil, fmt.Errorf("its edits can't be read: %w", err)
	}
	m.Edits = list.GetEdits()
	if m.Verdict, decodeErr = unmarshalVerdict(verdict); decodeErr != nil {
		return m, nil, decodeErr
	}
	return m, nil, nil
}

func unmarshalVerdict(b []byte) (*mailv1.Verdict, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // no verdict
	}
	v := &mailv1.Verdict{}
	if err := wire.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("its verdict can't be read: %w", err)
	}
	return v, nil
}

const attemptColumns = `a.id, a.message_id, a.kind, a.destination, a.number, a.token, a.recipients, a.ended_recipients,
	a.ended_states, a.ended_replies, a.at, a.verdict, a.journal`

func scanAttempt(row pgx.Row) (a spool.Attempt, err, decodeErr error) {
	var kind string
	var indexes []int32
	var states, replies []string
	var verdict, journal []byte
	err = row.Scan(&a.ID, &a.Message, &kind, &a.Destination, &a.Number, &a.Token, &a.Recipients, &indexes, &states, &replies,
		&a.Time, &verdict, &journal)
	if err != nil {
		return a, err, nil
	}
	a.Kind = spool.AttemptKind(kind)
	if a.Ended, decodeErr = decodeEnds(indexes, states, replies); decodeErr != nil {
		return a, nil, decodeErr
	}
	if a.Verdict, decodeErr = unmarshalVerdict(verdict); decodeErr != nil {
		return a, nil, decodeErr
	}
	a.Journal, decodeErr = decodeJournal(journal)
	return a, nil, decodeErr
}

// scanOutcome reads the columns message_id, states, replies, at, verdict, journal, which are null where there is none.
type outcomeFields struct {
	id               pgtype.UUID
	states, replies  []string
	at               pgtype.Timestamptz
	verdict, journal []byte
}

const outcomeColumns = "o.message_id, o.states, o.replies, o.at, o.verdict, o.journal"

func (f *outcomeFields) fields() []any {
	return []any{&f.id, &f.states, &f.replies, &f.at, &f.verdict, &f.journal}
}

func (f *outcomeFields) outcome() (*spool.Outcome, error) {
	if !f.id.Valid {
		return nil, nil //nolint:nilnil // it has not ended
	}
	indexes := make([]int32, len(f.states))
	for i := range indexes {
		indexes[i] = int32(i)
	}
	o := &spool.Outcome{Message: f.id.Bytes, Time: f.at.Time}
	var err error
	if o.Recipients, err = decodeEnds(indexes, f.states, f.replies); err != nil {
		return nil, err
	}
	if o.Verdict, err = unmarshalVerdict(f.verdict); err != nil {
		return nil, err
	}
	o.Journal, err = decodeJournal(f.journal)
	return o, err
}

const waitColumns = `d.message_id, d.destination, d.owner IS NOT NULL, d.reason, d.recipients, d.attempts, d.next_at, d.expires_at,
	d.last_reply`

func scanWait(row pgx.Row) (spool.Wait, error) {
	var w spool.Wait
	var reason, reply string
	var next, expires pgtype.Timestamptz
	err := row.Scan(&w.Message, &w.Destination, &w.Owned, &reason, &w.Recipients, &w.Attempts, &next, &expires, &reply)
	w.Reason = spool.WaitReason(reason)
	w.NextAt, w.ExpiresAt = timeOrNever(next), timeOrNever(expires)
	w.LastReply = parseReply(reply)
	return w, err
}

// timeOrNever gives the zero time for infinity.
func timeOrNever(t pgtype.Timestamptz) time.Time {
	if t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time
}

// never writes the zero time as infinity.
func never(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}

func decodeEnds(indexes []int32, states, replies []string) ([]spool.RecipientEnd, error) {
	if len(indexes) == 0 {
		return nil, nil
	}
	if len(states) != len(indexes) || len(replies) != len(indexes) {
		return nil, errors.New("its recipients' states can't be read: their number is not that of its recipients")
	}
	ends := make([]spool.RecipientEnd, len(indexes))
	for i := range indexes {
		value, ok := mailv1.RecipientState_value[statePrefix+strings.ToUpper(states[i])]
		if !ok {
			return nil, fmt.Errorf("its recipients' states can't be read: %q", states[i])
		}
		ends[i] = spool.RecipientEnd{
			Recipient: indexes[i], State: mailv1.RecipientState(value), Reply: parseReply(replies[i]),
		}
	}
	return ends, nil
}

// parseReply reads what replyText wrote.
func parseReply(text string) *mailv1.Reply {
	code, rest, ok := strings.Cut(text, " ")
	n, err := strconv.ParseInt(code, 10, 32)
	if !ok || err != nil {
		return nil
	}
	enhanced, rest, _ := strings.Cut(rest, " ")
	if enhanced == "-" {
		enhanced = ""
	}
	return &mailv1.Reply{Code: int32(n), EnhancedCode: enhanced, Text: rest}
}

func decodeJournal(b []byte) ([]*mailv1.JournalEntry, error) {
	var entries []*mailv1.JournalEntry
	in := bytes.NewReader(b)
	for {
		entry := &mailv1.JournalEntry{}
		err := protodelim.UnmarshalFrom(in, entry)
		if errors.Is(err, io.EOF) && in.Len() == 0 {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its journal can't be read: %w", err)
		}
		entries = append(entries, entry)
	}
}
