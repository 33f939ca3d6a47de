package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
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
	messages, chunks, attempts, outcomes, refusals *rowSet
	cut                                            []cutContent
}

// cutContent is a message of the batch whose content stands in chunk rows.
type cutContent struct {
	id    spool.ID
	owner spool.Incarnation
	size  int64
}

func (e *encoded) all() []*rowSet {
	return []*rowSet{e.messages, e.chunks, e.attempts, e.outcomes, e.refusals}
}

// The tables and their columns, in the order in which rows are made below.
var (
	messageTable = newTable("message", `id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits, verdict,
		traceparent, tracestate, content`, "(id) DO NOTHING")
	// The same octets may have been cut differently before: the longer chunk covers the shorter.
	chunkTable = newTable("content_chunk", "message_id, owner, at_offset, seq, data", `(message_id, owner, at_offset) DO UPDATE
		SET data = EXCLUDED.data WHERE octet_length(EXCLUDED.data) > octet_length(content_chunk.data)`)
	attemptTable = newTable("attempt", `id, message_id, kind, destination, number, token, recipients, ended_recipients, ended_states,
		ended_replies, at, verdict, `+journalColumns, "(id) DO NOTHING")
	outcomeTable = newTable("outcome", "message_id, states, replies, at, verdict, "+journalColumns, "(message_id) DO NOTHING")
	refusalTable = newTable("refusal", `message_id, refused_at, client, sender, recipients, recipient_sum, size, reply, rule, subject,
		from_address, header_message_id, traceparent`, "(message_id) DO NOTHING")
)

const journalColumns = "journal, journal_at, journal_event, journal_stage, journal_detail"

// encode makes rows of a batch. An error is a [*spool.RowError].
func encode(inc spool.Incarnation, batch *spool.Batch) (*encoded, error) {
	e := newEncoded(batch)
	for i := range batch.Chunks {
		c := &batch.Chunks[i]
		e.chunk(inc, c.Message, c.Offset, c.Seq, c.Data)
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
	for i := range batch.Refusals {
		e.refusal(&batch.Refusals[i])
	}
	return e, nil
}

// rowSize is about what a row takes besides content, in octets.
const rowSize = 1 << 10

// newEncoded makes room for a batch, so that content is copied once.
func newEncoded(batch *spool.Batch) *encoded {
	messages, chunks := rowSize*len(batch.Messages), rowSize*len(batch.Chunks)
	for i := range batch.Messages {
		if n := len(batch.Messages[i].Content); n > inlineSize {
			chunks += n
		} else {
			messages += n
		}
	}
	for i := range batch.Chunks {
		chunks += len(batch.Chunks[i].Data)
	}
	return &encoded{
		messages: newRows(messageTable, messages), chunks: newRows(chunkTable, chunks),
		attempts: newRows(attemptTable, rowSize*len(batch.Attempts)), outcomes: newRows(outcomeTable, rowSize*len(batch.Outcomes)),
		refusals: newRows(refusalTable, rowSize*len(batch.Refusals)),
	}
}

func (e *encoded) chunk(inc spool.Incarnation, id spool.ID, offset int64, seq int32, data []byte) {
	r := e.chunks
	r.add(id)
	r.uuid(id)
	r.bigint(int64(inc))
	r.bigint(offset)
	r.integer(seq)
	r.bytea(notNil(data))
}

func (e *encoded) message(inc spool.Incarnation, m *spool.Message) error {
	if m.Owner != 0 && m.Owner != inc {
		return fmt.Errorf("its owner is %d, but %d commits it", m.Owner, inc)
	}
	if m.Content != nil && int64(len(m.Content)) != m.Size {
		return fmt.Errorf("its size is said to be %d, but it has %d octets", m.Size, len(m.Content))
	}
	envelope, err := wire.Marshal(m.Envelope)
	if err != nil {
		return err
	}
	var edits []byte
	if len(m.Edits) > 0 { // there is no message of edits alone
		if edits, err = wire.Marshal(&mailv1.Verdict{Edits: m.Edits}); err != nil {
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
	r := e.messages
	r.add(m.ID)
	r.uuid(m.ID)
	r.bigint(int64(inc))
	r.text(clean(m.Envelope.GetSender()))
	r.texts(recipients)
	r.timestamptz(m.Accepted)
	r.bigint(m.Size)
	r.bytea(notNil(m.Hash))
	r.bytea(notNil(envelope))
	r.bytea(edits)
	r.bytea(verdict)
	r.text(clean(m.Trace.GetTraceparent()))
	r.text(clean(m.Trace.GetTracestate()))
	r.bytea(e.inline(inc, m))
	return nil
}

// inline is the content that stands in the message's own row; nil where it stands in chunk rows, of which it makes those that
// are not there yet.
func (e *encoded) inline(inc spool.Incarnation, m *spool.Message) []byte {
	content := m.Content
	if m.Size == 0 {
		content = []byte{}
	}
	if content != nil && len(content) <= inlineSize {
		return content
	}
	for offset := 0; offset < len(content); offset += chunkSize {
		e.chunk(inc, m.ID, int64(offset), int32(offset/chunkSize), content[offset:min(offset+chunkSize, len(content))])
	}
	e.cut = append(e.cut, cutContent{id: m.ID, owner: inc, size: m.Size})
	return nil
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
	r := e.attempts
	r.add(a.Message)
	r.uuid(a.ID)
	r.uuid(a.Message)
	r.text(string(a.Kind))
	r.text(clean(a.Destination))
	r.integer(a.Number)
	r.bytea(a.Token)
	r.integers(a.Recipients)
	r.integers(indexes)
	r.texts(states)
	r.texts(replies)
	r.timestamptz(a.Time)
	r.bytea(verdict)
	return r.journal(a.Journal)
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
	states, replies := encodeEnds(o.Recipients)
	r := e.outcomes
	r.add(o.Message)
	r.uuid(o.Message)
	r.texts(states)
	r.texts(replies)
	r.timestamptz(o.Time)
	r.bytea(verdict)
	return r.journal(o.Journal)
}

func (e *encoded) refusal(f *spool.Refusal) {
	recipients := make([]string, len(f.Recipients))
	for i, address := range f.Recipients {
		recipients[i] = clean(address)
	}
	r := e.refusals
	r.add(f.Message)
	r.uuid(f.Message)
	r.timestamptz(f.Time)
	r.text(clean(f.Client))
	r.text(clean(f.Sender))
	r.texts(recipients)
	r.integer(int32(f.RecipientSum))
	r.bigint(f.Size)
	r.text(replyText(f.Reply))
	r.text(clean(f.Rule))
	r.text(clean(f.Subject))
	r.text(clean(f.From))
	r.text(clean(f.HeaderMessageID))
	r.text(clean(f.Traceparent))
}

func marshalVerdict(v *mailv1.Verdict) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return wire.Marshal(v) // an empty verdict is a verdict
}

func encodeEnds(ends []spool.RecipientEnd) (states, replies []string) {
	states, replies = make([]string, len(ends)), make([]string, len(ends))
	for i, end := range ends {
		states[i], replies[i] = stateNames[end.State], replyText(end.Reply)
	}
	return states, replies
}

const statePrefix = "RECIPIENT_STATE_"

// stateNames are recipients' states as they stand in a table, such as `delivered`.
var stateNames = func() map[mailv1.RecipientState]string {
	names := map[mailv1.RecipientState]string{}
	for number, name := range mailv1.RecipientState_name {
		names[mailv1.RecipientState(number)] = strings.ToLower(strings.TrimPrefix(name, statePrefix))
	}
	return names
}()

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

// journal writes the columns of journalColumns: the entries as they are, and what people read of them.
func (r *rowSet) journal(entries []*mailv1.JournalEntry) error {
	var all []byte
	for _, entry := range entries {
		var err error
		if all, err = appendDelimited(all, entry); err != nil {
			return err
		}
	}
	r.bytea(all)
	array(r, pgtype.TimestamptzOID, len(entries), func(i int) { r.timestamptz(entries[i].GetTime().AsTime()) })
	array(r, pgtype.TextOID, len(entries), func(i int) { r.text(clean(entries[i].GetEvent())) })
	array(r, pgtype.TextOID, len(entries), func(i int) { r.text(clean(entries[i].GetStage())) })
	array(r, pgtype.TextOID, len(entries), func(i int) { r.text(clean(journalDetail(entries[i]))) })
	return nil
}

// appendDelimited appends a message behind its length, as protodelim reads it.
func appendDelimited(b []byte, m proto.Message) ([]byte, error) {
	b = protowire.AppendVarint(b, uint64(wire.Size(m)))
	return wire.Append(b, m)
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
