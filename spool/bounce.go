package spool

import (
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// bounceFailed takes note of a job that should have written a notification and did not. It is given out again a few times,
// each time later; then the recipients expire and nobody is told, which the journal says.
func (c *core) bounceFailed(j *job, why string) {
	d, m := j.delivery, j.msg
	c.settleJob(j)
	e := c.noteJob(j, eventFailed, d.recipients, cut(noNotification+why, 500))
	m.countBounceFailure(e)
	a := c.newAttempt(m, AttemptResult)
	a.Destination, a.Number, a.Token, a.Recipients = d.dest, j.sent.Attempt, j.token, d.recipients
	tries := m.bounceFails[d.recipients[0]]
	if tries < c.cfg.JobTries {
		c.wait(d, WaitRetry, c.backOff(int32(tries)))
	} else {
		endAll(m, d.recipients, mailv1.RecipientState_RECIPIENT_STATE_EXPIRED)
		c.note(m, eventExpired, bySpool, d.recipients, "no worker could write the notification")
		a.Ended = m.ends(d.recipients)
		m.deliveries = remove(m.deliveries, d)
	}
	c.finish(j, a, nil)
}

// noNotification is how the journal's entry about a notification begins that was not written.
const noNotification = "no notification: "

// countBounceFailure counts a failure by its entry in the journal, by which a later owner counts it as well.
func (m *message) countBounceFailure(e *mailv1.JournalEntry) {
	if !strings.HasPrefix(e.GetText(), noNotification) {
		return
	}
	if m.bounceFails == nil {
		m.bounceFails = map[int32]int{}
	}
	for _, r := range e.GetRecipients() {
		m.bounceFails[r]++
	}
}
