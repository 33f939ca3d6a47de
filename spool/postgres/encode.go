package postgres

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

const (
	// inlineSize is how much content stands in the message's own row, in octets.
	inlineSize = 8 << 10
	// chunkSize is how much content a chunk row holds at most when Commit itself cuts, in octets.
	chunkSize = 256 << 10
)

// encoded is what a batch appends.
type encoded struct {
	messages, chunks, attempts, outcomes *rowSet
}

func (e *encoded) all() []*rowSet { return []*rowSet{e.messages, e.chunks, e.attempts, e.outcomes} }

// The columns of the tables, in the order in which rows are made below.
var (
	messageRow = columns(`id uuid, owner bigint, sender text, recipients text[], accepted_at timestamptz, size bigint,
		content_hash bytea, envelope bytea, edits bytea, verdict bytea, traceparent text, tracestate text, content bytea`)
	chunkRow   = columns("message_id uuid, owner bigint, at_offset bigint, seq integer, data bytea")
	attemptRow = columns(`id uuid, message_id uuid, kind text, destination text, number integer, token bytea,
		recipients integer[], ended_recipients integer[], ended_states text[], ended_replies text[], at timestamptz,
		verdict bytea, ` + journalRow)
	outcomeRow = columns("message_id uuid, states text[], replies text[], at timestamptz, verdict bytea, " + journalRow)
)

const journalRow = `journal bytea, journal_at timestamptz[], journal_event text[], journal_stage text[],
	journal_detail text[]`

// encode makes rows of a batch. An error is a [*spool.RowError].
func encode(inc spool.Incarnation, batch *spool.Batch) (*encoded, error) {
	e := &encoded{
		messages: &rowSet{table: "message", conflict: "(id) DO NOTHING", columns: messageRow},
		// The same octets may have been cut differently before: the longer chunk covers the shorter.
		chunks: &rowSet{
			table: "content_chunk", columns: chunkRow,
			conflict: `(message_id, owner, at_offset) DO UPDATE SET data = EXCLUDED.data
				WHERE octet_length(EXCLUDED.data) > octet_length(content_chunk.data)`,
		},
		attempts: &rowSet{table: "attempt", conflict: "(id) DO NOTHING", columns: attemptRow},
		outcomes: &rowSet{table: "outcome", conflict: "(message_id) DO NOTHING", columns: outcomeRow},
	}
	for i := range batch.Chunks {
		c := &batch.Chunks[i]
		e.chunks.add(c.Message, c.Message, int64(inc), c.Offset, c.Seq, c.Data)
	}
	for i := range batch.Messages {
		if err := e.message(inc, &batch.Messages[i]); err != nil {
			return nil, &spool.RowError{Message: batch.Messages[i].ID, Err: err}
		}
	}
	for i := range batch.Attempts {
		if err := e.attempt(&batch.Attempts[i]); err != nil {
			return nil, &spool.RowError{Message: batch.Attempts[i].Message, Err: err}
		}
	}
	for i := range batch.Outcomes {
		if err := e.outcome(&batch.Outcomes[i]); err != nil {
			return nil, &spool.RowError{Message: batch.Outcomes[i].Message, Err: err}
		}
	}
	return e, nil
}

func (e *encoded) message(inc spool.Incarnation, m *spool.Message) error {
	if m.Owner != 0 && m.Owner != inc {
		return fmt.Errorf("its owner is %d, but %d commits it", m.Owner, inc)
	}
	if m.Content != nil && int64(len(m.Content)) != m.Size {
		return fmt.Errorf("its size is said to be %d, but it has %d octets", m.Size, len(m.Content))
	}
	envelope, err := proto.Marshal(m.Envelope)
	if err != nil {
		return err
	}
	var edits []byte
	if len(m.Edits) > 0 { // there is no message of edits alone
		if edits, err = proto.Marshal(&mailv1.Verdict{Edits: m.Edits}); err != nil {
			return err
		}
	}
	verdict, err := marshalVerdict(m.Verdict)
	if err != nil {
		return err
	}
	recipients := make([]string, 0, len(m.Envelope.GetRecipients()))
	for _, r := range m.Envelope.GetRecipients() {
		recipients = append(recipients, clean(r.GetAddress()))
	}
	content := m.Content
	if m.Size == 0 {
		content = []byte{}
	}
	if len(content) > inlineSize {
		e.cut(inc, m.ID, content)
		content = nil
	}
	hash := m.Hash
	if hash == nil {
		hash = []byte{}
	}
	e.messages.add(m.ID, m.ID, int64(inc), clean(m.Envelope.GetSender()), recipients, m.Accepted, m.Size, hash, envelope,
		edits, verdict, clean(m.Trace.GetTraceparent()), clean(m.Trace.GetTracestate()), content)
	return nil
}

// cut makes chunk rows of content that is too large for the message's row.
func (e *encoded) cut(inc spool.Incarnation, id spool.ID, content []byte) {
	for offset := 0; offset < len(content); offset += chunkSize {
		end := min(offset+chunkSize, len(content))
		e.chunks.add(id, id, int64(inc), int64(offset), int32(offset/chunkSize), content[offset:end])
	}
}

func (e *encoded) attempt(a *spool.Attempt) error {
	verdict, err := marshalVerdict(a.Verdict)
	if err != nil {
		return err
	}
	indexes := make([]int32, len(a.Ended))
	states, replies := encodeEnds(a.Ended)
	for i, end := range a.Ended {
		indexes[i] = end.Recipient
	}
	journal, err := encodeJournal(a.Journal)
	if err != nil {
		return err
	}
	e.attempts.add(a.Message, append([]any{
		a.ID, a.Message, string(a.Kind), clean(a.Destination), a.Number, a.Token, notNil(a.Recipients), indexes, states,
		replies, a.Time, verdict,
	}, journal...)...)
	return nil
}

func (e *encoded) outcome(o *spool.Outcome) error {
	for i, end := range o.Recipients {
		if int(end.Recipient) != i {
			return fmt.Errorf("place %d of its outcome is about recipient %d", i, end.Recipient)
		}
	}
	verdict, err := marshalVerdict(o.Verdict)
	if err != nil {
		return err
	}
	journal, err := encodeJournal(o.Journal)
	if err != nil {
		return err
	}
	states, replies := encodeEnds(o.Recipients)
	e.outcomes.add(o.Message, append([]any{o.Message, states, replies, o.Time, verdict}, journal...)...)
	return nil
}

func marshalVerdict(v *mailv1.Verdict) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	b, err := proto.Marshal(v)
	if b == nil {
		b = []byte{} // an empty verdict is a verdict
	}
	return b, err
}

func encodeEnds(ends []spool.RecipientEnd) (states, replies []string) {
	states, replies = make([]string, len(ends)), make([]string, len(ends))
	for i, end := range ends {
		states[i], replies[i] = stateName(end.State), replyText(end.Reply)
	}
	return states, replies
}

const statePrefix = "RECIPIENT_STATE_"

// stateName is a recipient's state as it stands in a table, such as `delivered`.
func stateName(s mailv1.RecipientState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), statePrefix))
}

// replyText is a reply as it stands in a table: code, enhanced code or "-", text. Empty if there is none.
func replyText(r *mailv1.Reply) string {
	if r == nil {
		return ""
	}
	enhanced := r.GetEnhancedCode()
	if enhanced == "" {
		enhanced = "-"
	}
	return clean(strconv.Itoa(int(r.GetCode())) + " " + enhanced + " " + r.GetText())
}

// encodeJournal gives the values of journalRow: the entries as they are, and what people read of them.
func encodeJournal(entries []*mailv1.JournalEntry) ([]any, error) {
	var all bytes.Buffer
	at := make([]time.Time, len(entries))
	event, stage, detail := make([]string, len(entries)), make([]string, len(entries)), make([]string, len(entries))
	for i, entry := range entries {
		if _, err := protodelim.MarshalTo(&all, entry); err != nil {
			return nil, err
		}
		at[i] = entry.GetTime().AsTime()
		event[i], stage[i], detail[i] = clean(entry.GetEvent()), clean(entry.GetStage()), clean(journalDetail(entry))
	}
	return []any{all.Bytes(), at, event, stage, detail}, nil
}

// journalDetail is the line that people read about an entry.
func journalDetail(entry *mailv1.JournalEntry) string {
	var parts []string
	if entry.GetText() != "" {
		parts = append(parts, entry.GetText())
	}
	if a := entry.GetAttempt(); a != nil {
		parts = append(parts, fmt.Sprintf("attempt %d for %s at %s", a.GetNumber(), a.GetDestination(), a.GetRemote()))
		for _, result := range a.GetResults() {
			if text := replyText(result.GetReply()); text != "" {
				parts = append(parts, fmt.Sprintf("recipient %d: %s", result.GetRecipient(), text))
			}
		}
	}
	if entry.GetWorker() != "" {
		parts = append(parts, "by "+entry.GetWorker())
	}
	return strings.Join(parts, "; ")
}

// clean makes a text that PostgreSQL takes: valid UTF-8 without NUL. What it changes stands unchanged in the encoded
// message beside it.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
