package spool

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The events of the journal.
const (
	eventAccepted    = "accepted"
	eventParsed      = "parsed"
	eventFiltered    = "filtered"
	eventPermitted   = "permitted"
	eventDelivered   = "delivered"
	eventDeferred    = "deferred"
	eventHeld        = "held"
	eventUnknown     = "unknown"
	eventUntried     = "not_attempted"
	eventBounced     = "bounced"
	eventExpired     = "expired"
	eventDiscarded   = "discarded"
	eventQuarantined = "quarantined"
	eventWithdrawn   = "withdrawn"
	eventAdopted     = "adopted"
	eventDuplicate   = "suspected_duplicate"
	eventWorkerLost  = "worker_lost"
	eventFailed      = "job_failed"
	eventCommand     = "command"
	eventCancelled   = "cancelled"
)

// The words of the journal for who did something.
const (
	byGateway = "gateway"
	bySpool   = "spool"
)

// note adds an entry to the journal and returns it for further details.
func (c *core) note(m *message, event, stage string, recipients []int32, text string) *mailv1.JournalEntry {
	e := &mailv1.JournalEntry{
		Time: timestamppb.New(c.now), Event: event, Stage: stage, Recipients: recipients, Text: text,
		Spool: c.spool, TraceId: traceID(m.row.Trace),
	}
	m.journal = append(m.journal, e)
	return e
}

// noteJob is note for what a worker did.
func (c *core) noteJob(j *job, event string, recipients []int32, text string) *mailv1.JournalEntry {
	e := c.note(j.msg, event, j.stage.String(), recipients, text)
	if j.worker != "" {
		e.Worker = j.worker
	}
	if j.sent != nil && j.sent.Trace.GetTraceparent() != "" {
		e.TraceId = traceID(j.sent.Trace)
	}
	return e
}

func (m *message) takeJournal() []*mailv1.JournalEntry {
	journal := m.journal
	m.journal, m.taken = nil, append(m.taken, journal...)
	return journal
}

// takeVerdict returns the verdict where no durable row has it yet.
func (m *message) takeVerdict() *mailv1.Verdict {
	if !m.verdictNew {
		return nil
	}
	m.verdictNew = false
	return m.verdict
}

// traceID cuts the trace id from a traceparent (W3C Trace Context, section 3.2.2).
func traceID(tc *mailv1.TraceContext) string {
	p := tc.GetTraceparent()
	if len(p) < 55 || p[2] != '-' || p[35] != '-' {
		return ""
	}
	return p[3:35]
}
