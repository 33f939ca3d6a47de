package spool

import (
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// life is where a message in memory stands.
type life uint8

const (
	lifeJudging    life = iota // it is judged before it is made durable, and may still be refused
	lifeCommitting             // its own row is not durable yet
	lifeLive                   // it is ours and on its way
	lifeLeaving                // the write that lets it leave memory is under way
	lifeParked                 // the database refuses its rows: kept until this process ends
)

// message is a message in memory.
type message struct {
	row  Message // Content is nil where it is over the inline limit
	life life

	recipients []recipient
	front      *front      // what waits for its verdict; nil where nothing does
	deliveries []*delivery // one by each destination that has recipients left
	held       []int32
	holdTimer  *timer

	cost int64 // about how many octets of memory it takes, as counted in core.bytes

	rows    map[string]*row // its waiting rows
	journal []*mailv1.JournalEntry
	// taken are the entries of journal that rows on their way to the store carry: still told by live, until they are durable.
	taken   []*mailv1.JournalEntry
	verdict *mailv1.Verdict
	parsed  *mailv1.ParsedMessage
	// verdictNew says that no row handed to the store carries the verdict yet.
	verdictNew bool
	// bounceFails counts by recipient how often no worker could write the notification.
	bounceFails map[int32]int
	// suspect says that a worker died while it had the message: it is parsed and filtered alone.
	suspect bool

	writing bool     // a write is with the engine
	writes  []*write // those that follow it, in order

	waiters   []*waiter // who waits to hear that it is durable
	unjudged  *timer    // when it is made durable without a verdict, while it is being judged
	duplicate ID        // an earlier message that looks the same
	aborted   bool      // nobody waits any more: it must be withdrawn
	reload    *Stored   // claimed again before the write that let it leave was known to be durable
}

// recipient is where one recipient stands.
type recipient struct {
	state mailv1.RecipientState
	reply *mailv1.Reply
}

// row is a waiting row of a message.
type row struct {
	Wait
	stored  bool // a write with it has been handed to the store
	dirty   bool // it has changed since
	dropped bool // it is to be deleted
}

func newMessage(m Message) *message {
	msg := &message{row: m, life: lifeCommitting, recipients: make([]recipient, len(m.Envelope.GetRecipients()))}
	for i := range msg.recipients {
		msg.recipients[i].state = mailv1.RecipientState_RECIPIENT_STATE_ACTIVE
	}
	return msg
}

func isEnded(s mailv1.RecipientState) bool {
	return s >= mailv1.RecipientState_RECIPIENT_STATE_DELIVERED
}

// allEnded tells whether every recipient has ended.
func (m *message) allEnded() bool {
	for i := range m.recipients {
		if !isEnded(m.recipients[i].state) {
			return false
		}
	}
	return true
}

// unended returns those of the recipients that have not ended, without those that don't exist.
func (m *message) unended(recipients []int32) []int32 {
	var left []int32
	for _, r := range recipients {
		if m.has(r) && !isEnded(m.recipients[r].state) {
			left = append(left, r)
		}
	}
	return left
}

func (m *message) has(r int32) bool { return r >= 0 && int(r) < len(m.recipients) }

// everyone returns all recipients that have not ended.
func (m *message) everyone() []int32 {
	var left []int32
	for i := range m.recipients {
		if !isEnded(m.recipients[i].state) {
			left = append(left, int32(i))
		}
	}
	return left
}

func (m *message) setState(recipients []int32, state mailv1.RecipientState) {
	for _, r := range recipients {
		m.recipients[r].state = state
	}
}

// end ends one recipient. What has ended stays as it is.
func (m *message) end(r int32, state mailv1.RecipientState, reply *mailv1.Reply) {
	if !m.has(r) || isEnded(m.recipients[r].state) {
		return
	}
	m.recipients[r].state = state
	if reply != nil {
		m.recipients[r].reply = reply
	}
}

func (m *message) ends(recipients []int32) []RecipientEnd {
	ends := make([]RecipientEnd, 0, len(recipients))
	for _, r := range recipients {
		ends = append(ends, RecipientEnd{Recipient: r, State: m.recipients[r].state, Reply: m.recipients[r].reply})
	}
	return ends
}

// active tells whether something is under way that keeps the message in memory, or soon will be.
func (c *core) active(m *message) bool {
	if f := m.front; f != nil && (f.state != unitWaiting || c.soon(f.timer)) {
		return true
	}
	for _, d := range m.deliveries {
		if d.state != unitWaiting || c.soon(d.timer) {
			return true
		}
	}
	return len(m.held) > 0 && c.soon(m.holdTimer)
}

// soon tells whether a timer ends before the store would be asked for what is due then: see [Config.lookAhead].
func (c *core) soon(t *timer) bool {
	return t != nil && t.index >= 0 && !t.at.After(c.now.Add(c.cfg.lookAhead()))
}

// destination is the next hop that a recipient is queued for: the domain of the address in lower case.
func (m *message) destination(r int32) string {
	return DestinationOf(m.row.Envelope.GetRecipients()[r].GetAddress())
}

// byDestination groups recipients, keeping their order.
func (m *message) byDestination(recipients []int32) (destinations []string, groups map[string][]int32) {
	groups = map[string][]int32{}
	for _, r := range recipients {
		d := m.destination(r)
		if _, known := groups[d]; !known {
			destinations = append(destinations, d)
		}
		groups[d] = append(groups[d], r)
	}
	return destinations, groups
}

// expiry is when a message's age is over, counted from when it may be sent.
func (c *core) expiry(m *message) time.Time {
	from := m.row.Accepted
	if at := c.releaseAt(m); at.After(from) {
		from = at
	}
	return from.Add(c.cfg.MaxAge)
}

// releaseAt is before when a message must not be sent, the zero time where its sender did not say. It is no later than a hold
// of the message would end.
func (c *core) releaseAt(m *message) time.Time {
	release := m.row.Envelope.GetReleaseAt()
	if release == nil {
		return time.Time{}
	}
	if at := release.AsTime(); at.Before(c.holdEnd(m)) {
		return at
	}
	return c.holdEnd(m)
}

func (c *core) holdEnd(m *message) time.Time { return m.row.Accepted.Add(c.cfg.HoldMaxAge) }

// keep puts a message into memory.
func (c *core) keep(m *message) {
	c.messages[m.row.ID] = m
	m.cost = 0
	c.charge(m, messageCost+len(m.row.Content)+wire.Size(m.row.Envelope)+wire.Size(m.verdict)+
		recipientCost*len(m.recipients))
}

// What a message takes in memory beside its content and what was read from it, in octets: itself, its journal, its writes
// and its jobs; and for each recipient its state and its part of the envelope.
const (
	messageCost   = 4 << 10
	recipientCost = 512
)

// charge adds to what a message takes in memory.
func (c *core) charge(m *message, octets int) {
	m.cost += int64(octets)
	if c.messages[m.row.ID] == m {
		c.bytes += int64(octets)
	}
}

// forget takes a message out of memory. Nothing of it may be under way.
func (c *core) forget(m *message) {
	if c.messages[m.row.ID] != m {
		return
	}
	delete(c.messages, m.row.ID)
	c.bytes -= m.cost
	c.fresh.drop(m.row.ID)
}

// halt stops everything that is under way for a message.
func (c *core) halt(m *message, why string) {
	c.timers.stop(m.holdTimer)
	if f := m.front; f != nil {
		c.timers.stop(f.timer)
		c.dropJob(f.job, why)
	}
	for _, d := range m.deliveries {
		c.timers.stop(d.timer)
		c.dropJob(d.job, why)
	}
	m.front, m.deliveries, m.held = nil, nil, nil
}
