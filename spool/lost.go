package spool

import (
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// leftPeer is a worker whose stream has ended.
type leftPeer struct{ peer *peer }

func (e leftPeer) apply(c *core) {
	p := e.peer
	if p.gone {
		return
	}
	p.gone = true
	c.peers = remove(c.peers, p)
	defer c.judgedByNobody(p.stage)
	jobs := p.jobs
	p.jobs = nil
	for j := range jobs {
		j.peer = nil
		c.leases.remove(j)
		if j.stage == StageDeliver {
			c.lostDelivery(j)
			continue
		}
		c.lostFront(j, p)
	}
}

// lostDelivery decides about a deliver job whose worker has gone.
func (c *core) lostDelivery(j *job) {
	switch j.permit {
	case permitNone:
		if j.delivery.bounce && !c.stopping {
			c.bounceFailed(j, "the worker was lost")
			return
		}
		c.again(j)
	case permitAsked:
		j.lost = true
	case permitGranted:
		// The worker may come back on a new stream and tell.
		c.awaitResult(j)
	}
}

// awaitResult gives a permitted job's worker some time to present the result on a new stream.
func (c *core) awaitResult(j *job) {
	j.grace = c.timers.start(c.now.Add(c.cfg.ReturnGrace), func() { c.unknown(j, "the worker was lost") })
}

// lostFront decides about a parse or filter job whose worker has gone. It may be what the worker died of: it runs alone
// from now on, and is put aside where its worker dies again (promise P5). A worker that drained left on purpose, and one
// that comes back did not die: see returned.
func (c *core) lostFront(j *job, p *peer) {
	m := j.msg
	if p.draining || c.stopping {
		c.again(j)
		return
	}
	c.noteJob(j, eventWorkerLost, nil, "")
	if j.alone && p.instance == "" {
		c.quarantine(j)
		return
	}
	if j.alone {
		c.doubt(p.instance).alone = append(c.doubt(p.instance).alone, j)
		j.grace = c.timers.start(c.now.Add(c.cfg.ReturnGrace), func() { c.quarantine(j) })
		return
	}
	if p.instance != "" {
		c.doubt(p.instance).suspects = append(c.doubt(p.instance).suspects, m)
	}
	m.suspect = true
	c.again(j)
	// A later owner must know as well. Where the message is not durable yet, goOn tells the store.
	c.commit(m, c.newAttempt(m, AttemptNote), nil)
}

// doubtful is what a worker had whose stream broke, while it is not known whether it died.
type doubtful struct {
	since    time.Time
	alone    []*job     // that may have killed it: they are neither given out nor put aside yet
	suspects []*message // that run alone since
}

func (c *core) doubt(instance string) *doubtful {
	d := c.doubts[instance]
	if d == nil {
		d = &doubtful{since: c.now}
		c.doubts[instance] = d
	}
	return d
}

// returnSettle is how long a worker that came back has to present the results that it holds, before its lone jobs are given
// out again.
const returnSettle = time.Second

// returned clears the jobs of a worker whose stream broke and that is there again: it did not die of them. What broke the
// stream while it ran alone may still be at fault, as a result that no stream can carry: that counts as a failure, of
// which a job has only a few.
func (c *core) returned(instance string) {
	d := c.doubts[instance]
	if instance == "" || d == nil {
		return
	}
	delete(c.doubts, instance)
	for _, j := range d.alone {
		if j.dropped {
			continue
		}
		c.timers.stop(j.grace)
		j.grace = c.timers.start(c.now.Add(returnSettle), func() {
			if j.dropped {
				return
			}
			c.dropJob(j, "")
			c.frontFailed(j.front, "the stream to its worker broke")
		})
	}
	for _, m := range d.suspects {
		f := m.front
		if c.messages[m.row.ID] != m || !m.suspect || f == nil || f.state != unitReady || f.job == nil || f.job.token != nil {
			continue
		}
		m.suspect = false
		c.again(f.job)
	}
}

// forgetDoubts forgets workers that have been away for too long to be alive.
func (c *core) forgetDoubts() {
	for instance, d := range c.doubts {
		if c.now.Sub(d.since) > 2*c.cfg.ReturnGrace {
			delete(c.doubts, instance)
		}
	}
}

// quarantine ends the recipients whose message kills workers. Where the message is not durable yet, goOn tells the store.
func (c *core) quarantine(j *job) {
	if j.dropped {
		return
	}
	m := j.msg
	if m.life == lifeJudging {
		c.makeDurable(m, nil)
	}
	recipients := m.unended(j.front.recipients)
	c.dropJob(j, "")
	m.front = nil
	endAll(m, recipients, mailv1.RecipientState_RECIPIENT_STATE_QUARANTINED)
	c.note(m, eventQuarantined, bySpool, recipients, "workers die of it at stage "+j.stage.String())
	c.recordEnds(m, recipients)
}

// endLeases takes jobs from workers that have not been heard of for too long.
func (c *core) endLeases() {
	for {
		j := c.leases.front
		if j == nil || j.leaseEnd.After(c.now) {
			return
		}
		c.endLease(j)
	}
}

func (c *core) endLease(j *job) {
	const why = "the lease of the job has ended"
	if j.permit == permitAsked {
		// Its row is being written: whatever comes of that, the worker is not told yes.
		c.decide(decision{kind: decideCancel, peer: j.peer, token: j.token, text: why})
		c.unsend(j)
		j.lost = true
		return
	}
	if j.permit == permitGranted {
		c.decide(decision{kind: decideCancel, peer: j.peer, token: j.token, text: why})
		c.unknown(j, "the worker took too long")
		return
	}
	if j.delivery != nil && j.delivery.bounce {
		c.decide(decision{kind: decideCancel, peer: j.peer, token: j.token, text: why})
		c.bounceFailed(j, why)
		return
	}
	c.dropJob(j, why)
	if j.delivery != nil {
		j.delivery.job = nil
		c.readyDelivery(j.delivery)
		return
	}
	c.frontFailed(j.front, why)
}

// stop says that the spool is about to end: nothing new is given out.
type stop struct{}

func (stop) apply(c *core) {
	c.stopping = true
	for _, p := range c.peers {
		c.decide(decision{kind: decideDrain, peer: p})
	}
	c.judgeAfter()
}

// lostIncarnation says that this incarnation has been fenced, or may soon be. What it holds is another's.
type lostIncarnation struct{ next Incarnation }

func (e lostIncarnation) apply(c *core) {
	for _, m := range c.messages {
		for _, w := range m.waiters {
			c.answer(w, Receipt{}, errLost())
		}
	}
	for _, list := range c.expected {
		for _, w := range list {
			c.answer(w, Receipt{}, errLost())
		}
	}
	for _, j := range c.jobs {
		if j.peer != nil {
			c.decide(decision{kind: decideCancel, peer: j.peer, token: j.token, text: "the spool has lost its lease"})
			delete(j.peer.jobs, j)
		}
		if j.counted {
			c.ack(j.ackTo, j.token, AckAgain)
		}
	}
	c.reset(e.next)
}
