package spool

import (
	"fmt"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// progressed renews a job's lease.
type progressed struct {
	peer  *peer
	token []byte
}

func (e progressed) apply(c *core) {
	if j := c.jobs[string(e.token)]; j != nil && j.peer == e.peer {
		c.renew(j)
	}
}

func (c *core) renew(j *job) {
	if j.peer != nil && !j.counted {
		c.leases.remove(j)
		c.leases.push(j, c.now.Add(c.cfg.JobLease))
	}
}

// resulted is a result that a worker presents.
type resulted struct {
	peer   *peer
	token  []byte
	result WorkResult
}

func (e resulted) apply(c *core) {
	j := c.jobs[string(e.token)]
	if j == nil {
		c.ack(e.peer, e.token, c.judgeStranger(e.token))
		return
	}
	if j.counted {
		j.ackTo = e.peer // presented again before it was durable
		return
	}
	if !fits(j, e.result) {
		e.result = WorkResult{Failure: "the result is not one of stage " + j.stage.String()}
	}
	if j.worker == "" {
		j.worker = e.peer.name
	}
	j.ackTo = e.peer
	if j.stage == StageDeliver {
		c.deliverResult(j, e.result)
		return
	}
	// What parsers and filters found is durable with the next row, or is found again.
	c.unsend(j)
	delete(c.jobs, string(j.token))
	j.dropped = true
	c.ack(e.peer, e.token, AckCounted)
	switch {
	case e.result.Parsed != nil:
		c.parsed(j, e.result.Parsed)
	case e.result.Verdict != nil:
		c.filtered(j, e.result.Verdict)
	default:
		c.frontFailed(j.front, e.result.Failure)
	}
}

// fits tells whether a result is of the kind that a job asks for.
func fits(j *job, r WorkResult) bool {
	if r.Parsed == nil && r.Verdict == nil && r.Attempt == nil {
		return true // a failure
	}
	switch j.stage {
	case StageParser:
		return r.Parsed != nil
	case StageFilter:
		return r.Verdict != nil
	default:
		return r.Attempt != nil
	}
}

// judgeStranger tells what becomes of a result whose token names no job here.
func (c *core) judgeStranger(token []byte) AckStatus {
	inc, id, stage, ok := splitToken(token)
	if !ok || inc == c.inc || stage != StageDeliver || c.messages[id] != nil {
		return AckStale
	}
	if _, known := c.ended.find(id); known {
		return AckStale
	}
	// Its message may be on its way to us or to another spool; after a while it must have arrived.
	since, known := c.strangers[string(token)]
	if !known {
		if len(c.strangers) < recentLimit {
			c.strangers[string(token)] = c.now
		}
		return AckAgain
	}
	if c.now.Sub(since) > c.cfg.AgainFor {
		return AckStale
	}
	return AckAgain
}

// deliverResult takes what a deliver worker says of a job.
func (c *core) deliverResult(j *job, r WorkResult) {
	d := j.delivery
	at := r.Attempt
	switch {
	case at == nil && d.bounce:
		c.bounceFailed(j, r.Failure)
		return
	case at == nil:
		c.deliverFailed(j, r.Failure)
		return
	case d.bounce:
		c.bounced(j, r.Notifications)
		return
	}
	c.attempted(j, at, r.Notifications)
}

// deliverFailed turns a worker's failure into a result: temporary, or unknown where the job was permitted.
func (c *core) deliverFailed(j *job, why string) {
	if j.permit == permitGranted {
		c.unknown(j, "the worker failed")
		return
	}
	d := j.delivery
	reply := &mailv1.Reply{Code: 451, EnhancedCode: "4.3.0", Text: "The worker failed"}
	at := &mailv1.Attempt{Destination: d.dest, Number: j.sent.Attempt}
	for _, i := range d.recipients {
		at.Results = append(at.Results, &mailv1.RecipientResult{
			Recipient: i, Status: mailv1.ResultStatus_RESULT_STATUS_TEMPORARY, Reply: reply,
		})
	}
	c.noteJob(j, eventFailed, d.recipients, cut(why, 500))
	c.attempted(j, at, nil)
}

// tally is an attempt's recipients by how it went for them.
type tally struct{ delivered, discarded, permanent, temporary, unknown, untried []int32 }

// count sorts an attempt's results. A recipient about whom nothing is said may have got it where the job was permitted.
func (c *core) count(j *job, at *mailv1.Attempt) tally {
	var t tally
	m := j.msg
	results := map[int32]*mailv1.RecipientResult{}
	for _, r := range at.GetResults() {
		results[r.GetRecipient()] = r
	}
	for _, i := range m.unended(j.delivery.recipients) {
		r := results[i]
		if r.GetReply() != nil && r.GetStatus() != mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED {
			m.recipients[i].reply = r.GetReply()
		}
		switch r.GetStatus() {
		case mailv1.ResultStatus_RESULT_STATUS_DELIVERED:
			t.delivered = append(t.delivered, i)
		case mailv1.ResultStatus_RESULT_STATUS_DISCARDED:
			t.discarded = append(t.discarded, i)
		case mailv1.ResultStatus_RESULT_STATUS_PERMANENT:
			t.permanent = append(t.permanent, i)
		case mailv1.ResultStatus_RESULT_STATUS_TEMPORARY:
			t.temporary = append(t.temporary, i)
		case mailv1.ResultStatus_RESULT_STATUS_UNKNOWN:
			t.unknown = append(t.unknown, i)
		case mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED:
			t.untried = append(t.untried, i)
		default:
			if j.permit == permitNone {
				t.temporary = append(t.temporary, i)
			} else {
				t.unknown = append(t.unknown, i)
			}
		}
	}
	return t
}

// untriedAt is when the next attempt is due after one that was cut short. That was no fault of the next hop: at first it is
// tried again soon, later as if it were, since whatever cuts attempts short may not be over.
func (c *core) untriedAt(d *delivery) time.Time {
	wait := time.Second << min(d.untried, 20)
	d.untried++
	if later := c.backOff(1); c.now.Add(wait).After(later) {
		return later
	}
	return c.now.Add(wait)
}

// attempted records how an attempt went. The worker hears that it counts once it is durable.
func (c *core) attempted(j *job, at *mailv1.Attempt, notifications []Notification) {
	d, m := j.delivery, j.msg
	c.settleJob(j)
	t := c.count(j, at)
	c.noteTally(j, at, t)
	endAll(m, t.delivered, mailv1.RecipientState_RECIPIENT_STATE_DELIVERED)
	endAll(m, t.discarded, mailv1.RecipientState_RECIPIENT_STATE_DISCARDED)
	endAll(m, t.permanent, mailv1.RecipientState_RECIPIENT_STATE_BOUNCED)
	ended := append(append(append([]int32(nil), t.delivered...), t.discarded...), t.permanent...)
	d.attempts = max(d.attempts+1, j.sent.Attempt)

	a := c.newAttempt(m, AttemptResult)
	a.Destination, a.Number, a.Token, a.Recipients = d.dest, j.sent.Attempt, j.token, d.recipients
	a.Ended = m.ends(ended)
	d.recipients = append(append(append([]int32(nil), t.temporary...), t.unknown...), t.untried...)
	if len(t.untried) == 0 {
		d.untried = 0
	}
	switch {
	case len(d.recipients) == 0:
		m.deliveries = remove(m.deliveries, d)
	case d.ordered != "":
		rest := d.recipients
		m.deliveries = remove(m.deliveries, d)
		c.putWhere(m, d.ordered, rest)
		if d.ordered == VerbCancel {
			a.Ended = m.ends(append(ended, rest...))
		}
	case len(t.unknown) > 0:
		c.wait(d, WaitUnknown, c.unknownAt(d.attempts))
	case len(t.temporary) == 0:
		c.wait(d, WaitRetry, c.untriedAt(d))
	default:
		c.wait(d, WaitRetry, c.backOff(d.attempts))
	}
	c.finish(j, a, notifications)
}

// bounced ends the recipients whose time was up, with the notification that a worker wrote.
func (c *core) bounced(j *job, notifications []Notification) {
	d, m := j.delivery, j.msg
	c.settleJob(j)
	ended := d.recipients
	if c.now.Before(c.expiry(m)) { // an operator did not want to wait
		endAll(m, ended, mailv1.RecipientState_RECIPIENT_STATE_BOUNCED)
		c.noteJob(j, eventBounced, ended, "")
	} else {
		endAll(m, ended, mailv1.RecipientState_RECIPIENT_STATE_EXPIRED)
		c.noteJob(j, eventExpired, ended, "")
	}
	a := c.newAttempt(m, AttemptResult)
	a.Destination, a.Number, a.Token, a.Recipients = d.dest, j.sent.Attempt, j.token, ended
	a.Ended = m.ends(ended)
	m.deliveries = remove(m.deliveries, d)
	c.finish(j, a, notifications)
}

// settleJob takes a job whose result counts from its worker, until the result is durable.
func (c *core) settleJob(j *job) {
	j.counted = true
	c.timers.stop(j.grace)
	c.unsend(j)
	c.sched.finished(j)
	if j.delivery.job == j {
		j.delivery.job = nil
	}
}

// finish writes a result with its notifications, and acknowledges it when that is durable.
func (c *core) finish(j *job, a *Attempt, notifications []Notification) {
	m := j.msg
	w := c.record(m, a, func() {
		delete(c.jobs, string(j.token))
		c.ack(j.ackTo, j.token, AckCounted)
	})
	c.notify(m, w, notifications)
	c.push(w)
}

func endAll(m *message, recipients []int32, state mailv1.RecipientState) {
	for _, r := range recipients {
		m.end(r, state, nil)
	}
}

// noteTally enters an attempt into the journal: one entry for each way it went, the first of them with the attempt.
func (c *core) noteTally(j *job, at *mailv1.Attempt, t tally) {
	var first *mailv1.JournalEntry
	for _, e := range []struct {
		event      string
		recipients []int32
	}{
		{eventDelivered, t.delivered},
		{eventDiscarded, t.discarded},
		{eventBounced, t.permanent},
		{eventDeferred, t.temporary},
		{eventUnknown, t.unknown},
		{eventUntried, t.untried},
	} {
		if len(e.recipients) == 0 {
			continue
		}
		entry := c.noteJob(j, e.event, e.recipients, c.replyText(j.msg, e.recipients[0]))
		if first == nil {
			first = entry
			first.Attempt = at
		}
	}
}

func (c *core) replyText(m *message, r int32) string {
	reply := m.recipients[r].reply
	if reply == nil {
		return ""
	}
	return cut(fmt.Sprintf("%d %s %s", reply.GetCode(), reply.GetEnhancedCode(), reply.GetText()), 500)
}
