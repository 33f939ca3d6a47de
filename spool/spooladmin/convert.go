package spooladmin

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// message shows a record with what its owner knows beyond it; live is nil where that is not known.
func message(rec *spool.Record, live *spool.Live) *adminv1.Message {
	msg := &adminv1.Message{
		Summary:  summary(rec, live),
		Envelope: rec.Envelope,
		Edits:    rec.Edits,
		Verdict:  verdict(rec),
		Journal:  durableJournal(rec),
	}
	if live == nil {
		return msg
	}
	msg.Parsed = live.Parsed
	if msg.Verdict == nil {
		msg.Verdict = live.Verdict
	}
	if rec.Outcome == nil {
		msg.Journal = appendNew(msg.GetJournal(), live.Journal)
	}
	return msg
}

func summary(rec *spool.Record, live *spool.Live) *adminv1.MessageSummary {
	recipients := recipients(rec, live)
	sum := &adminv1.MessageSummary{
		Id:              rec.ID.String(),
		State:           state(rec, recipients),
		Sender:          rec.Envelope.GetSender(),
		Recipients:      recipients,
		Subject:         rec.Search.Subject,
		HeaderMessageId: rec.Search.HeaderMessageID,
		Size:            rec.Size,
		ReceivedAt:      rec.Envelope.GetReception().GetReceivedAt(),
		TraceId:         traceID(rec.Trace),
	}
	if sum.GetReceivedAt() == nil {
		sum.ReceivedAt = timestamp(rec.Accepted)
	}
	if rec.Outcome != nil {
		sum.EndedAt = timestamp(rec.Outcome.Time)
	}
	return sum
}

// state is where the message stands as a whole. It has ended only when that is durable.
func state(rec *spool.Record, recipients []*adminv1.RecipientStatus) adminv1.MessageState {
	if rec.Outcome != nil {
		return adminv1.MessageState_MESSAGE_STATE_ENDED
	}
	var deferred, held bool
	for _, r := range recipients {
		switch r.GetState() {
		case mailv1.RecipientState_RECIPIENT_STATE_ACTIVE:
			return adminv1.MessageState_MESSAGE_STATE_ACTIVE
		case mailv1.RecipientState_RECIPIENT_STATE_DEFERRED:
			deferred = true
		case mailv1.RecipientState_RECIPIENT_STATE_HELD:
			held = true
		default:
		}
	}
	if len(recipients) == 0 { // the envelope could not be decoded
		for _, wait := range rec.Waits {
			deferred = deferred || waitState(wait.Reason) == mailv1.RecipientState_RECIPIENT_STATE_DEFERRED
			held = held || waitState(wait.Reason) == mailv1.RecipientState_RECIPIENT_STATE_HELD
		}
	}
	switch {
	case deferred:
		return adminv1.MessageState_MESSAGE_STATE_DEFERRED
	case held:
		return adminv1.MessageState_MESSAGE_STATE_HELD
	default:
		return adminv1.MessageState_MESSAGE_STATE_ACTIVE
	}
}

// recipients tells where each recipient stands: ended if that is durable, else as the owner says, else by the rows that
// wait, else active.
func recipients(rec *spool.Record, live *spool.Live) []*adminv1.RecipientStatus {
	list := rec.Envelope.GetRecipients()
	out := make([]*adminv1.RecipientStatus, len(list))
	for i, rcpt := range list {
		out[i] = &adminv1.RecipientStatus{
			Address: rcpt.GetAddress(), State: mailv1.RecipientState_RECIPIENT_STATE_ACTIVE,
		}
	}
	applyReplies(out, rec.Attempts)
	applyWaits(out, rec.Waits)
	if live != nil {
		applyLive(out, live.Recipients)
	}
	for _, attempt := range rec.Attempts {
		applyEnds(out, attempt.Ended)
	}
	if rec.Outcome != nil {
		applyEnds(out, rec.Outcome.Recipients)
	}
	return out
}

func applyReplies(out []*adminv1.RecipientStatus, attempts []spool.Attempt) {
	for _, attempt := range attempts {
		for _, entry := range attempt.Journal {
			for _, res := range entry.GetAttempt().GetResults() {
				if r := at(out, res.GetRecipient()); r != nil && res.GetReply() != nil {
					r.LastReply = res.GetReply()
				}
			}
		}
	}
}

func applyWaits(out []*adminv1.RecipientStatus, waits []spool.Wait) {
	for _, wait := range waits {
		waiting := waitState(wait.Reason)
		if waiting == mailv1.RecipientState_RECIPIENT_STATE_ACTIVE {
			continue
		}
		for _, index := range wait.Recipients {
			r := at(out, index)
			if r == nil {
				continue
			}
			r.State, r.NextAt = waiting, timestamp(wait.NextAt)
			if wait.LastReply != nil {
				r.LastReply = wait.LastReply
			}
		}
	}
}

func waitState(reason spool.WaitReason) mailv1.RecipientState {
	switch reason {
	case spool.WaitRetry, spool.WaitUnknown, spool.WaitFilter, spool.WaitSchedule:
		return mailv1.RecipientState_RECIPIENT_STATE_DEFERRED
	case spool.WaitHold:
		return mailv1.RecipientState_RECIPIENT_STATE_HELD
	default: // spool.WaitAll: about to be worked at
		return mailv1.RecipientState_RECIPIENT_STATE_ACTIVE
	}
}

func applyLive(out []*adminv1.RecipientStatus, live []spool.RecipientStatus) {
	for i, status := range live {
		if i >= len(out) || status.State == mailv1.RecipientState_RECIPIENT_STATE_UNSPECIFIED {
			continue
		}
		out[i].State, out[i].NextAt = status.State, timestamp(status.NextAt)
		if status.LastReply != nil {
			out[i].LastReply = status.LastReply
		}
	}
}

func applyEnds(out []*adminv1.RecipientStatus, ends []spool.RecipientEnd) {
	for _, end := range ends {
		r := at(out, end.Recipient)
		if r == nil {
			continue
		}
		r.State, r.NextAt = end.State, nil
		if end.Reply != nil {
			r.LastReply = end.Reply
		}
	}
}

// at is the recipient of an index, nil where a row names one that does not exist.
func at(out []*adminv1.RecipientStatus, index int32) *adminv1.RecipientStatus {
	if index < 0 || int(index) >= len(out) {
		return nil
	}
	return out[index]
}

func verdict(rec *spool.Record) *mailv1.Verdict {
	found := rec.Verdict
	for _, attempt := range rec.Attempts {
		if attempt.Verdict != nil {
			found = attempt.Verdict
		}
	}
	if rec.Outcome != nil && rec.Outcome.Verdict != nil {
		found = rec.Outcome.Verdict
	}
	return found
}

func durableJournal(rec *spool.Record) []*mailv1.JournalEntry {
	var journal []*mailv1.JournalEntry
	for _, attempt := range rec.Attempts {
		journal = append(journal, attempt.Journal...)
	}
	if rec.Outcome != nil {
		journal = append(journal, rec.Outcome.Journal...)
	}
	return journal
}

// appendNew adds what the owner knows, but for what has become durable since it was asked.
func appendNew(journal, live []*mailv1.JournalEntry) []*mailv1.JournalEntry {
	durable := journal
	for _, entry := range live {
		known := false
		for _, d := range durable {
			known = known || proto.Equal(d, entry)
		}
		if !known {
			journal = append(journal, entry)
		}
	}
	return journal
}

// traceID is the trace id of a traceparent (W3C Trace Context, section 3.2): version, trace id, parent id and flags,
// joined by dashes.
func traceID(trace *mailv1.TraceContext) string {
	parts := strings.Split(trace.GetTraceparent(), "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
