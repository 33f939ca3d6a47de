package spool

import (
	"time"
)

// permitState is how far a deliver job has come towards its point of no return.
type permitState uint8

const (
	permitNone    permitState = iota
	permitAsked               // its row is being written
	permitGranted             // its row is durable
)

// job is one message at one stage, from when it is ready until its result counts.
type job struct {
	stage    Stage
	msg      *message
	front    *front    // of a parse or filter job
	delivery *delivery // of a deliver job
	readyAt  time.Time

	token  []byte // while it is with a worker or may come back
	sent   *Job
	peer   *peer  // who has it; nil once that is gone
	worker string // its name
	alone  bool
	permit permitState
	// dropped says that it is no longer wanted; a ready queue may still hold it.
	dropped bool
	// counted says that its result counts and is being written.
	counted bool
	ackTo   *peer // who hears that
	// freed says that it no longer takes one of its destination's places.
	freed bool
	// lost says that its worker went away while the permit's row was being written.
	lost  bool
	grace *timer

	leaseEnd   time.Time // in the lease list while peer is set
	prev, next *job
}

// peer is a worker's stream.
type peer struct {
	stage    Stage
	name     string
	instance string  // the start of the worker whose stream it is; empty where it does not tell
	worker   *Worker // the engine's; the core only names the peer
	credits  int
	jobs     map[*job]struct{}
	claim    int // to the next job, see pick
	draining bool
	reserved bool // it gets no ordinary jobs, since one is to run alone on it
	gone     bool
}

// stageQueue holds the ready jobs of a stage.
type stageQueue struct {
	ready fifo[*job] // parse and filter jobs
	alone fifo[*job] // those that a worker died of
}

// joined is a worker that registered.
type joined struct{ peer *peer }

func (e joined) apply(c *core) {
	e.peer.jobs = map[*job]struct{}{}
	c.peers = append(c.peers, e.peer)
	c.returned(e.peer.instance)
	if c.stopping {
		c.decide(decision{kind: decideDrain, peer: e.peer})
	}
}

// credited is a worker that can take more jobs.
type credited struct {
	peer *peer
	n    int
}

// maxCredits bounds what a worker may claim to be able to take.
const maxCredits = 1 << 20

func (e credited) apply(*core) {
	if e.n > 0 {
		e.peer.credits = min(e.peer.credits+e.n, maxCredits)
	}
}

// drained is a worker that wants no more jobs.
type drained struct{ peer *peer }

func (e drained) apply(c *core) {
	e.peer.draining = true
	c.judgedByNobody(e.peer.stage)
}

// dispatch sends ready jobs for as long as there are credits.
func (c *core) dispatch() {
	for _, stage := range []Stage{StageParser, StageFilter} {
		q := &c.stages[stage]
		c.dispatchAlone(stage, q)
		for {
			j, ok := q.ready.peek()
			if !ok {
				break
			}
			if !j.dropped {
				p := c.pick(stage)
				if p == nil {
					break
				}
				c.send(j, p)
			}
			q.ready.pop()
		}
	}
	c.dispatchDeliver()
}

// dispatchAlone gives the jobs that a worker died of to workers that hold nothing else, one at a time (promise P5).
func (c *core) dispatchAlone(stage Stage, q *stageQueue) {
	for {
		j, ok := q.alone.peek()
		if !ok {
			c.unreserve(stage)
			return
		}
		if j.dropped {
			q.alone.pop()
			continue
		}
		p := c.reserve(stage)
		if p == nil || len(p.jobs) > 0 || p.credits == 0 {
			return
		}
		q.alone.pop()
		j.alone = true
		p.reserved = false
		c.send(j, p)
	}
}

// reserve returns the worker that the next lone job goes to: one that is free, or else the one that holds the least and
// gets nothing more until it is free. Should that one hang, another that becomes free takes its place.
func (c *core) reserve(stage Stage) *peer {
	var best *peer
	for _, p := range c.peers {
		if p.stage != stage || p.draining || p.holdsAlone() {
			continue
		}
		if len(p.jobs) == 0 && p.credits > 0 {
			c.unreserve(stage)
			return p
		}
		if best == nil || p.reserved || !best.reserved && len(p.jobs) < len(best.jobs) {
			best = p
		}
	}
	if best != nil {
		best.reserved = true
	}
	return best
}

func (c *core) unreserve(stage Stage) {
	for _, p := range c.peers {
		if p.stage == stage {
			p.reserved = false
		}
	}
}

func (p *peer) holdsAlone() bool {
	if len(p.jobs) != 1 {
		return false
	}
	for j := range p.jobs {
		return j.alone
	}
	return false
}

// pick returns the worker that gets the next job; nil if none can take one. Workers are served in proportion to their
// free credits by smooth weighted round robin: each turn everyone's claim grows by what he could take, the greatest claim
// is served and pays for all.
func (c *core) pick(stage Stage) *peer {
	var best *peer
	total := 0
	for _, p := range c.peers {
		if p.stage != stage || p.credits == 0 || p.draining || p.reserved || p.holdsAlone() {
			continue
		}
		p.claim += p.credits
		total += p.credits
		if best == nil || p.claim > best.claim {
			best = p
		}
	}
	if best != nil {
		best.claim -= total
	}
	return best
}

// send gives a job to a worker.
func (c *core) send(j *job, p *peer) {
	p.credits--
	p.jobs[j] = struct{}{}
	j.peer, j.worker = p, p.name
	j.token = c.mintToken(j.msg.row.ID, j.stage)
	c.jobs[string(j.token)] = j
	c.leases.push(j, c.now.Add(c.cfg.JobLease))
	m := j.msg
	j.sent = &Job{
		Token: j.token, Stage: j.stage, ID: m.row.ID, Envelope: m.row.Envelope, Edits: m.row.Edits, Trace: m.row.Trace,
		Lease: c.cfg.JobLease, Size: m.row.Size, Content: m.row.Content,
	}
	switch j.stage {
	case StageFilter:
		j.sent.Parsed = m.parsed
	case StageDeliver:
		c.fillDelivery(j)
	}
	c.decide(decision{kind: decideSend, peer: p, job: j.sent, readyAt: j.readyAt, accepted: m.row.Accepted})
}

// unsend takes a job from its worker.
func (c *core) unsend(j *job) {
	if j.peer != nil {
		delete(j.peer.jobs, j)
		j.peer = nil
	}
	c.leases.remove(j)
}

// dropJob ends a job whatever its state. The worker that has it is told.
func (c *core) dropJob(j *job, why string) {
	if j == nil || j.dropped {
		return
	}
	j.dropped = true
	c.timers.stop(j.grace)
	if j.delivery != nil {
		c.sched.finished(j)
	}
	if j.token == nil {
		return
	}
	if p := j.peer; p != nil && !j.counted {
		c.decide(decision{kind: decideCancel, peer: p, token: j.token, text: why})
	}
	c.unsend(j)
	delete(c.jobs, string(j.token))
}

// fifo is a queue. The zero fifo is empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) push(x T) { q.items = append(q.items, x) }

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) peek() (x T, ok bool) {
	if q.head == len(q.items) {
		return x, false
	}
	return q.items[q.head], true
}

func (q *fifo[T]) pop() {
	var zero T
	q.items[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head > 1024 && q.head*2 > len(q.items):
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// leaseList holds the jobs that are with workers, the one whose lease ends first in front. All leases are equally long,
// so that a renewed one goes to the back.
type leaseList struct{ front, back *job }

func (l *leaseList) push(j *job, end time.Time) {
	j.leaseEnd, j.prev, j.next = end, l.back, nil
	if l.back != nil {
		l.back.next = j
	} else {
		l.front = j
	}
	l.back = j
}

func (l *leaseList) remove(j *job) {
	if j.prev == nil && l.front != j {
		return
	}
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.front = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		l.back = j.prev
	}
	j.prev, j.next = nil, nil
}
