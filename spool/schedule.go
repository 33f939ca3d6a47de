package spool

import (
	"math"
	"slices"
	"strings"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// unitState is where a part of a message stands.
type unitState uint8

const (
	unitReady   unitState = iota // in a ready queue, or about to be
	unitOut                      // with a worker, or with one that may come back
	unitWaiting                  // it has a waiting row, and nothing is under way
)

// delivery is the recipients of a message at one destination.
type delivery struct {
	msg        *message
	dest       string
	recipients []int32
	attempts   int32 // made so far
	untried    int32 // attempts in a row that were cut short
	state      unitState
	job        *job
	timer      *timer
	// claimed says that its row was claimed, since its destination had room and it had waited long enough: once it is due, it
	// does not wait in the store again.
	claimed bool
	// bounce says that no attempt is made any more: a worker only writes the notification.
	bounce bool
	// expires is when its time is up, where an operator wants it earlier than the message's age does; else zero.
	expires time.Time
	// ordered is what an operator wants for those whom the attempt that is past its permit does not reach.
	ordered Verb
}

// expiryOf is when a delivery's time is up.
func (c *core) expiryOf(d *delivery) time.Time {
	if !d.expires.IsZero() {
		return d.expires
	}
	return c.expiry(d.msg)
}

// bounceQueue is where jobs stand that only write a notification: they must not wait for their destination.
const bounceQueue = "!bounce"

// scheduler holds the ready deliver jobs: a queue for each destination, served in turn, each with a limit of jobs at a
// time. So a slow destination holds up nobody else.
type scheduler struct {
	cfg    *Config
	queues map[string]*destinationQueue
	ring   fifo[*destinationQueue] // those that have ready jobs and room
	// suspended are the patterns of destinations that get no jobs, see suspend.
	suspended []pattern.Pattern
}

type destinationQueue struct {
	name   string
	ready  fifo[*job]
	out    int           // jobs with workers
	limit  int           // of out
	every  time.Duration // the least time from one job to the next
	pacing bool          // that has not passed yet
	inRing bool
	// crowded says that nothing more is wanted from the store, since the destination has its share of the memory: one that
	// takes nothing must not fill the memory that all need. So it is from nearly full until half of that is gone.
	crowded bool
	// diverting says that new mail for the destination waits in the store: from when the queue is full until what waits
	// there has been loaded, so that newcomers do not pass it.
	diverting bool
	// suspended says that the destination gets no jobs, and new mail for it waits in the store.
	suspended bool
}

func newScheduler(cfg Config) scheduler {
	return scheduler{cfg: &cfg, queues: map[string]*destinationQueue{}}
}

func (d *delivery) queueName() string {
	if d.bounce {
		return bounceQueue
	}
	return d.dest
}

func (s *scheduler) push(j *job) {
	name := j.delivery.queueName()
	q := s.queues[name]
	if q == nil {
		name = strings.Clone(name) // it stays for longer than the address that it is cut from
		q = &destinationQueue{name: name, suspended: s.suspends(name)}
		q.limit, q.every = s.cfg.limitsFor(name)
		if name == bounceQueue {
			q.limit, q.every = math.MaxInt, 0 // for notifications no next hop is asked
		}
		s.queues[name] = q
	}
	q.ready.push(j)
	s.weigh(q)
	s.enter(q)
}

func (s *scheduler) enter(q *destinationQueue) {
	if !q.inRing && !q.pacing && !q.suspended && q.ready.len() > 0 && q.out < q.limit {
		q.inRing = true
		s.ring.push(q)
	}
}

// next takes the next job; nil if none may be sent.
func (s *scheduler) next() *job {
	for {
		q, ok := s.ring.peek()
		if !ok {
			return nil
		}
		s.ring.pop()
		q.inRing = false
		for q.ready.len() > 0 && !q.suspended {
			j, _ := q.ready.peek()
			q.ready.pop()
			s.weigh(q)
			if j.dropped {
				continue
			}
			q.out++
			q.pacing = q.every > 0
			s.enter(q)
			return j
		}
		s.tidy(q)
	}
}

// paced lets the next job of a destination go.
func (s *scheduler) paced(q *destinationQueue) {
	q.pacing = false
	s.enter(q)
	s.tidy(q)
}

// finished makes room for the next job of a destination.
func (s *scheduler) finished(j *job) {
	if j.sent == nil || j.freed {
		return
	}
	j.freed = true
	q := s.queues[queueOf(j)]
	if q == nil || q.out == 0 {
		return
	}
	q.out--
	s.enter(q)
	s.tidy(q)
}

func queueOf(j *job) string {
	if j.sent.Bounce != nil {
		return bounceQueue
	}
	return j.delivery.dest
}

func (s *scheduler) tidy(q *destinationQueue) {
	if q.out == 0 && q.ready.len() == 0 && !q.inRing && !q.diverting && !q.pacing {
		delete(s.queues, q.name)
	}
}

// dispatchDeliver sends deliver jobs for as long as there are credits.
func (c *core) dispatchDeliver() {
	if c.held {
		return
	}
	for {
		if c.sched.ring.len() == 0 {
			return
		}
		p := c.pick(StageDeliver)
		if p == nil {
			return
		}
		j := c.sched.next()
		if j == nil {
			return
		}
		c.send(j, p)
		j.delivery.state = unitOut
		if q := c.sched.queues[queueOf(j)]; q != nil && q.pacing {
			c.timers.start(c.now.Add(q.every), func() { c.sched.paced(q) })
		}
	}
}

// fillDelivery completes a deliver job.
func (c *core) fillDelivery(j *job) {
	d, m := j.delivery, j.msg
	if edits := m.verdict.GetEdits(); len(edits) > 0 {
		j.sent.Edits = append(append([]*mailv1.Edit(nil), m.row.Edits...), edits...)
	}
	j.sent.Destination, j.sent.Recipients, j.sent.Attempt = d.dest, d.recipients, d.attempts+1
	if d.bounce {
		j.sent.Bounce = c.bounceResults(d)
	}
}

// bounceResults tells the last that was heard of recipients whose time is up.
func (c *core) bounceResults(d *delivery) []*mailv1.RecipientResult {
	results := make([]*mailv1.RecipientResult, 0, len(d.recipients))
	for _, r := range d.recipients {
		reply := d.msg.recipients[r].reply
		if reply == nil {
			// RFC 3463: 4.4.7, delivery time expired.
			reply = &mailv1.Reply{Code: 451, EnhancedCode: "4.4.7", Text: "Delivery time expired"}
		}
		results = append(results, &mailv1.RecipientResult{
			Recipient: r, Status: mailv1.ResultStatus_RESULT_STATUS_TEMPORARY, Reply: reply,
		})
	}
	return results
}

// deliver makes recipients ready for delivery. All deliveries stand before the first is set going, so that the message
// does not look finished in between.
func (c *core) deliver(m *message, recipients []int32) (parked bool) {
	destinations, groups := m.byDestination(recipients)
	added := make([]*delivery, 0, len(destinations))
	for _, dest := range destinations {
		added = append(added, m.addDelivery(dest, groups[dest]))
	}
	for _, d := range added {
		parked = c.enqueue(d) || parked
	}
	return parked
}

// addDelivery makes the delivery of recipients to a destination, to be made ready or to wait by the caller.
func (m *message) addDelivery(dest string, recipients []int32) *delivery {
	for _, d := range m.deliveries {
		if d.dest == dest && d.state != unitOut {
			d.recipients = append(d.recipients[:len(d.recipients):len(d.recipients)], recipients...)
			return d
		}
	}
	d := &delivery{msg: m, dest: dest, recipients: recipients}
	if r := m.rows[dest]; r != nil {
		d.attempts = r.Attempts
	}
	m.deliveries = append(m.deliveries, d)
	return d
}

// enqueue makes a delivery ready unless it is too early to send it, or new mail for its destination waits in the store. Then
// the delivery waits as well: parked asks the caller to write its row.
func (c *core) enqueue(d *delivery) (parked bool) {
	if at := c.releaseAt(d.msg); !d.bounce && c.now.Before(at) && c.now.Before(c.expiryOf(d)) {
		c.dropJob(d.job, "")
		c.wait(d, WaitSchedule, at)
		return true
	}
	if !d.bounce && c.sched.diverts(d.dest) && c.now.Before(c.expiryOf(d)) {
		c.park(d)
		return true
	}
	c.readyDelivery(d)
	return false
}

// enqueueAlone is enqueue where nothing else of the message is about to be written.
func (c *core) enqueueAlone(d *delivery) {
	if c.enqueue(d) {
		c.commit(d.msg, nil, nil)
	}
}

// readyDelivery puts a delivery into its destination's queue, as a notification only where its time is up.
func (c *core) readyDelivery(d *delivery) {
	m := d.msg
	c.timers.stop(d.timer)
	c.dropJob(d.job, "")
	d.state, d.job = unitReady, nil
	m.setState(d.recipients, mailv1.RecipientState_RECIPIENT_STATE_ACTIVE)
	if !c.now.Before(c.expiryOf(d)) {
		if m.row.Envelope.GetSender() == "" {
			// The null reverse-path is told nothing (RFC 5321, section 4.5.5).
			c.expire(d)
			return
		}
		d.bounce = true
	}
	d.job = &job{stage: StageDeliver, msg: m, delivery: d, readyAt: c.now}
	c.sched.push(d.job)
}

// parkTime is how long a delivery that waits in the store for its destination's queue to become shorter stays in memory
// before it is looked at again, should its message stay so long.
const parkTime = 10 * time.Second

// park lets a delivery wait in the store since its destination has enough in memory. There it is due at once, for whoever
// has room.
func (c *core) park(d *delivery) {
	c.dropJob(d.job, "")
	reason := WaitRetry
	if r := d.msg.rows[d.dest]; r != nil {
		reason = r.Reason
	}
	c.wait(d, reason, c.now)
	c.wake(d, c.now.Add(max(parkTime, 2*c.cfg.lookAhead()))) // what is due sooner would stay in memory
}

// expire ends the recipients of a delivery by age, without notification.
func (c *core) expire(d *delivery) {
	m := d.msg
	recipients := d.recipients
	for _, r := range recipients {
		m.end(r, mailv1.RecipientState_RECIPIENT_STATE_EXPIRED, nil)
	}
	c.note(m, eventExpired, bySpool, recipients, "")
	m.deliveries = remove(m.deliveries, d)
	c.recordEnds(m, recipients)
}

// recordEnds writes that recipients have ended, where it is not the message's end.
func (c *core) recordEnds(m *message, recipients []int32) {
	a := c.newAttempt(m, AttemptResult)
	a.Recipients, a.Ended = recipients, m.ends(recipients)
	c.commit(m, a, nil)
}

// wait makes a delivery wait. The row goes out with the next write.
func (c *core) wait(d *delivery, reason WaitReason, at time.Time) {
	m := d.msg
	c.merge(d)
	if end := c.expiryOf(d); at.After(end) && c.now.Before(end) {
		at = end
	}
	d.state, d.job, d.claimed = unitWaiting, nil, false
	m.setState(d.recipients, mailv1.RecipientState_RECIPIENT_STATE_DEFERRED)
	var reply *mailv1.Reply
	for _, r := range d.recipients {
		if m.recipients[r].reply != nil {
			reply = m.recipients[r].reply
		}
	}
	m.setRow(Wait{
		WaitKey: WaitKey{Destination: d.dest}, Reason: reason, Recipients: append(m.outByRow(d), d.recipients...), Attempts: d.attempts,
		NextAt: at, ExpiresAt: c.expiryOf(d), LastReply: reply,
	})
	c.wake(d, at)
}

// outByRow are the recipients that are under way in another delivery for the same destination and stand in its row: they
// keep their place there, by which they are found again.
func (m *message) outByRow(d *delivery) []int32 {
	r := m.rows[d.dest]
	if r == nil || r.dropped {
		return nil
	}
	var out []int32
	for _, other := range m.deliveries {
		if other == d || other.dest != d.dest {
			continue
		}
		for _, i := range m.unended(other.recipients) {
			if slices.Contains(r.Recipients, i) {
				out = append(out, i)
			}
		}
	}
	return out
}

// merge takes in what else of the message goes to the same destination, since that has one waiting row.
func (c *core) merge(d *delivery) {
	for _, other := range append([]*delivery(nil), d.msg.deliveries...) {
		if other == d || other.dest != d.dest || other.state == unitOut {
			continue
		}
		c.timers.stop(other.timer)
		c.dropJob(other.job, "")
		d.recipients = append(d.recipients[:len(d.recipients):len(d.recipients)], other.recipients...)
		d.msg.deliveries = remove(d.msg.deliveries, other)
	}
}

// wake makes a waiting delivery ready at a time, should the message still be in memory then.
func (c *core) wake(d *delivery, at time.Time) {
	c.timers.stop(d.timer)
	d.timer = c.timers.start(at, func() { c.due(d) })
}

// due makes a delivery ready that has waited, as far as its destination's queue has room.
func (c *core) due(d *delivery) {
	if d.claimed {
		c.readyDelivery(d)
		return
	}
	c.enqueueAlone(d)
}

// stopTimers lets what waits be woken by the store, since the message leaves memory.
func (c *core) stopTimers(m *message) {
	c.timers.stop(m.holdTimer)
	if m.front != nil {
		c.timers.stop(m.front.timer)
	}
	for _, d := range m.deliveries {
		c.timers.stop(d.timer)
	}
}

// backOff is when the next attempt is due after n were made, with jitter so that what failed together does not come
// back together.
func (c *core) backOff(n int32) time.Time {
	list := c.cfg.BackOff
	wait := list[min(max(int(n), 1), len(list))-1]
	spread := float64(wait) * c.cfg.Jitter * (2*c.rng.Float64() - 1)
	return c.now.Add(wait + time.Duration(spread))
}

// unknownAt is when the next attempt is due after one whose outcome is not known. Each may send the message once more,
// so that they become as rare as other attempts.
func (c *core) unknownAt(n int32) time.Time {
	at := c.now.Add(c.cfg.UnknownDelay)
	if n > 1 {
		if later := c.backOff(n); later.After(at) {
			at = later
		}
	}
	return at
}

// expireQueued ends the wait of a message's parts that stand in a ready queue longer than the message may live, as where
// no worker comes.
func (c *core) expireQueued(m *message) {
	if f := m.front; f != nil && f.state == unitReady {
		c.expireFront(f)
	}
	for _, d := range append([]*delivery(nil), m.deliveries...) {
		if d.state == unitReady && !d.bounce && d.job != nil {
			c.readyDelivery(d)
		}
	}
}
