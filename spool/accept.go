package spool

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// waiter is a gateway that waits to hear that a message is durable.
type waiter struct {
	id       ID
	deadline time.Time
	timer    *timer
	answered bool
	// done and span are the engine's; the core only names the waiter.
	done func(Receipt, error)
	span trace.Span
	size int64
}

// submitted is a message that a gateway hands over. The content over the inline limit stands in chunks, the last of
// which may come along.
type submitted struct {
	row    Message
	chunks []Chunk
	waiter *waiter
	again  bool // it was submitted before, and may be durable
}

func (e submitted) apply(c *core) {
	id := e.row.ID
	if c.inc == 0 {
		c.answer(e.waiter, Receipt{}, errLost())
		return
	}
	if c.stopping {
		c.answer(e.waiter, Receipt{}, smtpreply.New(451, "4.3.2", "Shutting down, try again later"))
		return
	}
	if m := c.messages[id]; m != nil {
		c.submittedAgain(m, e)
		return
	}
	if withdrawn, known := c.ended.find(id); known {
		if withdrawn {
			c.answer(e.waiter, Receipt{}, errWithdrawn())
		} else {
			c.answer(e.waiter, Receipt{}, nil)
		}
		return
	}
	if !c.await(e.waiter) {
		return
	}
	c.accept(e)
}

// submittedAgain answers for a message that is known by its id already.
func (c *core) submittedAgain(m *message, e submitted) {
	w := e.waiter
	switch {
	case m.aborted:
		c.answer(w, Receipt{}, errWithdrawn())
	case m.life < lifeLive:
		if c.await(w) {
			m.waiters = append(m.waiters, w)
		}
		if e.again && m.life == lifeJudging {
			c.makeDurable(m, nil) // another spool may have made it durable meanwhile
		}
	default:
		c.answer(w, Receipt{SuspectedDuplicateOf: m.duplicate}, nil)
	}
}

func errWithdrawn() error {
	return smtpreply.New(451, "4.4.2", "The message was taken back, send it anew")
}

// await starts a submitter's deadline. It is false where that has passed.
func (c *core) await(w *waiter) bool {
	if !w.deadline.After(c.now) {
		c.answer(w, Receipt{}, errDeadline())
		return false
	}
	w.timer = c.timers.start(w.deadline, func() { c.giveUp(w, errDeadline()) })
	return true
}

func errDeadline() error { return smtpreply.New(451, "4.4.2", "Taking too long, try again later") }

func (c *core) accept(e submitted) {
	e.row.Owner, e.row.Accepted = c.inc, c.now
	m := newMessage(e.row)
	m.waiters = []*waiter{e.waiter}
	c.note(m, eventAccepted, byGateway, nil, "")
	if id, ok := c.recent.find(e.row.Hash, c.now.Add(-c.cfg.DuplicateWindow)); ok {
		m.duplicate = id
		c.note(m, eventDuplicate, bySpool, nil, "looks like "+id.String())
	}
	c.keep(m)
	if c.judgesFirst(e) {
		c.judgeFirst(m)
		return
	}
	c.makeDurable(m, e.chunks)
}

// makeDurable hands the row of a message to the store; its submitters are answered by what comes of that.
func (c *core) makeDurable(m *message, chunks []Chunk) {
	c.endJudging(m)
	w := c.acceptWrite(m, m.row, chunks)
	w.accept = true
	w.then = func() { c.accepted(m) }
	c.push(w)
}

// acceptWrite is the write that brings a message into being.
func (c *core) acceptWrite(m *message, row Message, chunks []Chunk) *write {
	w := &write{msg: m, at: c.now.UnixNano()}
	w.Messages, w.Chunks = []Message{row}, chunks
	return w
}

// accepted is called when the message's row is durable.
func (c *core) accepted(m *message) {
	if m.aborted {
		c.withdraw(m)
		return
	}
	c.recent.add(m.row.Hash, m.row.ID, c.now)
	for _, w := range m.waiters {
		c.answer(w, Receipt{SuspectedDuplicateOf: m.duplicate}, nil)
	}
	m.waiters = nil
	c.admit(m)
}

// admit sets a durable message going, or lets it wait in the store: from when memory is full until what waits there has
// been loaded, so that messages keep their order. It waits only once it can't be withdrawn any more, for from then on
// another may claim it.
func (c *core) admit(m *message) {
	m.life = lifeLive
	if c.bytes >= int64(c.cfg.Memory) || len(c.messages) > c.cfg.Messages {
		c.diverting = true
	}
	if m.parsed != nil {
		c.tellSearch(m)
	}
	if !c.diverting {
		c.goOn(m)
		return
	}
	c.halt(m, "it waits in the store")
	m.setRow(Wait{
		WaitKey: WaitKey{Destination: DestinationAll}, Reason: WaitAll, NextAt: c.now, ExpiresAt: c.expiry(m),
	})
	c.commit(m, nil, nil)
}

// withdraw ends a message that became durable after its client was told 451. Nothing of it was sent.
func (c *core) withdraw(m *message) {
	for _, r := range m.everyone() {
		m.end(r, mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN, nil)
	}
	c.note(m, eventWithdrawn, bySpool, nil, "the client was told 451")
	c.push(c.record(m, nil, nil))
}

// refuse answers for a message whose row was not written, and forgets it. Where the message was claimed meanwhile, as
// when an adopted one was submitted again, it is ours by that.
func (c *core) refuse(m *message, err error) {
	waiters := m.waiters
	m.waiters = nil
	c.halt(m, "it was refused")
	c.forget(m)
	defer func() {
		if m.reload != nil {
			c.load(m.reload)
		}
	}()
	for _, w := range waiters {
		if w.answered {
			continue
		}
		switch {
		case errors.Is(err, ErrSettled):
			c.answer(w, Receipt{}, nil)
			continue
		case errors.Is(err, ErrWithdrawn):
			c.answer(w, Receipt{}, errWithdrawn())
			continue
		case errors.Is(err, ErrExists):
			// Another incarnation made it durable. It counts once it is ours, for only then it can't be withdrawn.
			c.expected[w.id] = append(c.expected[w.id], w)
			continue
		}
		c.answer(w, Receipt{}, smtpreply.From(err))
	}
}

// answer tells a submitter what became of the message, once.
func (c *core) answer(w *waiter, r Receipt, err error) {
	if w == nil || w.answered {
		return
	}
	w.answered = true
	c.timers.stop(w.timer)
	c.decide(decision{kind: decideAnswer, waiter: w, receipt: r, err: err})
}

// giveUp answers a submitter that no longer waits, and takes its message back where no one else waits for it.
func (c *core) giveUp(w *waiter, err error) {
	c.answer(w, Receipt{}, err)
	c.expected[w.id] = remove(c.expected[w.id], w)
	if len(c.expected[w.id]) == 0 {
		delete(c.expected, w.id)
	}
	m := c.messages[w.id]
	if m == nil || m.life >= lifeLive {
		return
	}
	m.waiters = remove(m.waiters, w)
	m.aborted = m.aborted || len(m.waiters) == 0
	if m.aborted && m.life == lifeJudging {
		c.dismiss(m, "nobody waits for it any more")
	}
}

// aborted says that a gateway no longer wants a message.
type aborted struct{ id ID }

func (e aborted) apply(c *core) {
	gone := smtpreply.New(451, "4.4.2", "The message was taken back")
	for _, w := range append([]*waiter(nil), c.expected[e.id]...) {
		c.giveUp(w, gone)
	}
	if m := c.messages[e.id]; m != nil {
		for _, w := range append([]*waiter(nil), m.waiters...) {
			c.giveUp(w, gone)
		}
	}
}

// remove returns list without x.
func remove[T comparable](list []T, x T) []T {
	for i := range list {
		if list[i] == x {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

func errLost() error {
	return smtpreply.New(451, "4.3.2", "The spool has to start anew, try again later")
}
