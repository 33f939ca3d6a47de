package spool

import (
	"fmt"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Verb is what an operator orders about a message.
type Verb string

// The verbs. They are about all recipients that have not ended. A recipient whose attempt is past its permit can't be
// stopped; what its attempt leaves is dealt with as ordered.
const (
	VerbHold    Verb = "hold"    // keep it until it is released
	VerbRelease Verb = "release" // deliver what is held, whatever the verdict was
	VerbCancel  Verb = "cancel"  // end it; nobody is told
	VerbRetry   Verb = "retry"   // try at once what waits for its next attempt
	VerbBounce  Verb = "bounce"  // end it, and notify the sender
)

// Command is an order of an operator about a message. It is a row; whoever owns the message executes it.
type Command struct {
	ID      int64
	Message ID
	Verb    Verb
	By      string
}

// CommandDone says what came of a command, in the transaction that has its effect.
type CommandDone struct {
	Command int64
	Result  string
}

// ordered are commands, with those of their messages that were claimed for it.
type ordered struct {
	inc      Incarnation
	messages []*Stored
	commands []Command
}

func (e ordered) apply(c *core) {
	if e.inc != c.inc {
		return
	}
	// A message that only waits leaves memory again as soon as it is loaded: its commands come first.
	c.orders = map[ID][]Command{}
	for _, command := range e.commands {
		c.orders[command.Message] = append(c.orders[command.Message], command)
	}
	loaded{inc: e.inc, messages: e.messages, more: true}.apply(c)
	c.orders = nil
	for _, command := range e.commands {
		commanded{command}.apply(c)
	}
}

// commanded is a command about a message that may be ours. One that can't be executed now comes again with the next look.
type commanded struct{ Command }

func (e commanded) apply(c *core) {
	m := c.messages[e.Message]
	if m == nil || m.life != lifeLive || c.commands[e.ID] {
		return
	}
	c.commands[e.ID] = true
	c.note(m, eventCommand, bySpool, nil, cut(fmt.Sprintf("%s, by %s", e.Verb, e.By), 500))
	recipients := c.obey(m, e.Verb)
	told := c.toldSuspended(m, e.Verb)
	a := c.newAttempt(m, AttemptNote)
	if e.Verb == VerbCancel && len(recipients) > 0 {
		a.Kind, a.Recipients, a.Ended = AttemptResult, recipients, m.ends(recipients)
	}
	w := c.record(m, a, func() { delete(c.commands, e.ID) })
	w.Commands = append(w.Commands, CommandDone{Command: e.ID, Result: m.told(e.Verb, len(recipients)) + told})
	c.push(w)
}

// told says what came of a command.
func (m *message) told(verb Verb, count int) string {
	text := fmt.Sprintf("%s: %d recipients", verb, count)
	sending := 0
	for _, d := range m.deliveries {
		if d.ordered == verb {
			sending += len(d.recipients)
		}
	}
	if sending > 0 {
		text += fmt.Sprintf("; %d are being sent, and follow where that fails", sending)
	}
	return text
}

// obey does what a verb says, in memory, and tells for which recipients. What is to be done goes into waiting rows that are
// due, so that a later owner does the same: where nothing else of the message is under way, it is claimed by them at once.
func (c *core) obey(m *message, verb Verb) []int32 {
	switch verb {
	case VerbRelease:
		recipients := c.unhold(m)
		c.schedule(m, recipients, false)
		return recipients
	case VerbRetry:
		return c.hurry(m)
	default:
		recipients := c.stopAll(m, verb)
		c.putWhere(m, verb, recipients)
		return recipients
	}
}

// putWhere puts recipients for which nothing is under way where a verb wants them.
func (c *core) putWhere(m *message, verb Verb, recipients []int32) {
	if len(recipients) == 0 {
		return
	}
	switch verb {
	case VerbHold:
		c.hold(m, recipients, bySpool)
	case VerbCancel:
		endAll(m, recipients, mailv1.RecipientState_RECIPIENT_STATE_CANCELLED)
		c.note(m, eventCancelled, bySpool, recipients, "")
	case VerbBounce:
		c.schedule(m, recipients, true)
	default:
	}
}

// stopAll stops everything that can be stopped and tells for which recipients that was. Deliveries past their permit are
// marked: what they leave is dealt with as ordered.
func (c *core) stopAll(m *message, verb Verb) []int32 {
	const why = "an operator stopped it"
	recipients := c.unhold(m)
	if f := m.front; f != nil {
		c.timers.stop(f.timer)
		c.dropJob(f.job, why)
		recipients = append(recipients, m.unended(f.recipients)...)
		m.front = nil
		m.dropRow(DestinationFilter)
	}
	for _, d := range append([]*delivery(nil), m.deliveries...) {
		if d.job != nil && d.job.permit != permitNone {
			d.ordered = verb
			continue
		}
		c.timers.stop(d.timer)
		c.dropJob(d.job, why)
		recipients = append(recipients, m.unended(d.recipients)...)
		m.deliveries = remove(m.deliveries, d)
		m.dropRow(d.dest)
	}
	return recipients
}

// dropRow takes the recipients whose delivery was stopped from its destination's waiting row: otherwise that would know
// better than the row that is to come.
func (m *message) dropRow(dest string) {
	r := m.rows[dest]
	if r == nil {
		return
	}
	r.Recipients, r.dirty = nil, true
	for _, d := range m.deliveries {
		if d.dest == dest {
			r.Recipients = append(r.Recipients, d.recipients...)
		}
	}
	r.dropped = len(r.Recipients) == 0
}

func (c *core) unhold(m *message) []int32 {
	c.timers.stop(m.holdTimer)
	held := m.unended(m.held)
	m.held = nil
	return held
}

// schedule gives recipients waiting rows for their destinations that are due now. Where they are to be bounced, the rows say
// that their time is up.
func (c *core) schedule(m *message, recipients []int32, bounce bool) {
	destinations, groups := m.byDestination(recipients)
	for _, dest := range destinations {
		d := m.addDelivery(dest, groups[dest])
		if bounce {
			d.expires = c.now
		}
		c.dropJob(d.job, "")
		c.wait(d, WaitRetry, c.now)
	}
}

// hurry makes due what waits for its next attempt.
func (c *core) hurry(m *message) []int32 {
	var recipients []int32
	for _, d := range append([]*delivery(nil), m.deliveries...) {
		if d.state == unitWaiting {
			recipients = append(recipients, d.recipients...)
			c.wait(d, m.rows[d.dest].Reason, c.now)
		}
	}
	if f := m.front; f != nil && f.state == unitWaiting {
		recipients = append(recipients, f.recipients...)
		r := m.rows[DestinationFilter].Wait
		r.NextAt = c.now
		m.setRow(r)
		c.timers.stop(f.timer)
		f.timer = c.timers.start(c.now, func() { c.wakeFront(f) })
	}
	return recipients
}
