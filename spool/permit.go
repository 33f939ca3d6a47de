package spool

import mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"

// permitRequested is a worker that is about to pass the point of no return of a deliver job.
type permitRequested struct {
	peer  *peer
	token []byte
}

func (e permitRequested) apply(c *core) {
	j := c.jobs[string(e.token)]
	if j == nil || j.stage != StageDeliver || j.delivery.bounce || j.counted || j.peer != e.peer {
		c.answerPermit(e.peer, e.token, false)
		return
	}
	c.renew(j)
	switch {
	case j.permit == permitGranted:
		c.answerPermit(e.peer, e.token, true)
	case j.permit == permitAsked:
		// It is answered when its row is durable.
	case c.stopping:
		c.answerPermit(e.peer, e.token, false)
	case c.held:
		c.answerPermit(e.peer, e.token, false)
		c.again(j) // when the hold has ended
	default:
		c.writePermit(j)
	}
}

func (c *core) answerPermit(p *peer, token []byte, granted bool) {
	if p != nil && !p.gone {
		c.decide(decision{kind: decidePermit, peer: p, token: token, granted: granted})
	}
}

func (c *core) writePermit(j *job) {
	d, m := j.delivery, j.msg
	j.permit = permitAsked
	c.noteJob(j, eventPermitted, d.recipients, "")
	a := c.newAttempt(m, AttemptPermit)
	a.Destination, a.Number, a.Token, a.Recipients = d.dest, j.sent.Attempt, j.token, d.recipients
	c.commit(m, a, func() { c.permitDurable(j) })
}

// permitDurable answers the worker. Where it has gone in the meantime, it never saw the permit: nothing was sent. That
// is recorded, so that no permit is left open, and the attempt is made again.
func (c *core) permitDurable(j *job) {
	if j.dropped || j.counted {
		return
	}
	if j.delivery.ordered != "" {
		c.answerPermit(j.peer, j.token, false)
		c.tell(j, mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED, &mailv1.Reply{
			Code: 451, EnhancedCode: "4.3.0", Text: "An operator stopped the attempt before it had its permit",
		})
		return
	}
	if j.lost {
		c.tell(j, mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED, &mailv1.Reply{
			Code: 451, EnhancedCode: "4.3.0", Text: "The worker was lost before it had its permit",
		})
		return
	}
	j.permit = permitGranted
	c.answerPermit(j.peer, j.token, true)
}

// again gives a job that was not permitted out once more, under a new token.
func (c *core) again(j *job) {
	c.dropJob(j, "")
	if d := j.delivery; d != nil {
		d.job = nil
		c.readyDelivery(d)
		return
	}
	j.front.job = nil
	c.readyFront(j.front)
}

// unknown records that nobody will tell how a permitted attempt went (promise P3).
func (c *core) unknown(j *job, why string) {
	if j.dropped || j.counted {
		return
	}
	c.tell(j, mailv1.ResultStatus_RESULT_STATUS_UNKNOWN, &mailv1.Reply{
		Code: 451, EnhancedCode: "4.4.2", Text: "It is not known whether the message was delivered: " + why,
	})
}

// tell records how an attempt went whose worker does not tell.
func (c *core) tell(j *job, status mailv1.ResultStatus, reply *mailv1.Reply) {
	at := &mailv1.Attempt{Destination: j.delivery.dest, Number: j.sent.Attempt}
	for _, r := range j.delivery.recipients {
		at.Results = append(at.Results, &mailv1.RecipientResult{Recipient: r, Status: status, Reply: reply})
	}
	c.attempted(j, at, nil)
}
