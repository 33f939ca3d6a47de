package spool

import (
	"slices"

	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// write is a group of rows that must become durable in one transaction.
type write struct {
	Batch
	msg *message
	// accept says that the write holds the message's own row and that its submitters wait: it may be refused.
	accept bool
	// last says that the message leaves memory with it.
	last bool
	// then is called once the write is durable.
	then func()
	// born are messages that come into being with it.
	born []*message
	// at is when the event happened that caused the write, in nanoseconds of Unix time, for the engine's span.
	at int64
	// chunkDone hears what became of a write without message: a chunk of an upload. It must not block.
	chunkDone func(error)
	// link leads to the span of its transaction, where tracing is on.
	link trace.Link
}

// setRow inserts or replaces a waiting row with the next write.
func (m *message) setRow(w Wait) {
	if m.rows == nil {
		m.rows = map[string]*row{}
	}
	w.Message = m.row.ID
	r := m.rows[w.Destination]
	if r == nil {
		r = &row{}
		m.rows[w.Destination] = r
	}
	r.Wait, r.dirty, r.dropped = w, true, false
}

// isPseudo tells whether a row's destination is none.
func isPseudo(destination string) bool { return len(destination) > 0 && destination[0] == '!' }

// prune marks the rows that are no longer needed: those whose recipients have all ended or stand in a row that knows
// better. A row for a destination knows better than !hold and !filter, and those know better than !all. Recipients that
// are under way and stand in no other row keep theirs, so that a message which was claimed always has a row by which it
// is found again.
func (m *message) prune() {
	if len(m.rows) == 0 {
		return
	}
	covered := map[int32]bool{}
	for pass := range 3 {
		for _, r := range m.rows {
			if rank(r.Destination) != pass || r.dropped {
				continue
			}
			left := m.unended(r.Recipients)
			if r.Destination == DestinationAll {
				left = m.everyone()
			}
			if pass > 0 && !slices.ContainsFunc(left, func(i int32) bool { return !covered[i] }) {
				r.dropped = true
				continue
			}
			if len(left) == 0 {
				r.dropped = true
			}
			for _, i := range left {
				covered[i] = true
			}
		}
	}
}

func rank(destination string) int {
	switch {
	case destination == DestinationAll:
		return 2
	case isPseudo(destination):
		return 1
	default:
		return 0
	}
}

// record makes a write of what has changed in a message: its end where every recipient has ended; else the row a (which
// may be nil) and the waiting rows. Where nothing is under way any more, the message leaves memory with it.
func (c *core) record(m *message, a *Attempt, then func()) *write {
	w := &write{msg: m, then: then, at: c.now.UnixNano()}
	if m.allEnded() {
		c.recordEnd(m, w)
		return w
	}
	leaving := !c.active(m)
	if a == nil && (leaving || m.verdictNew) {
		// Also where there is nothing to tell: by an appended row the store sees whether a commit went through, and does
		// not repeat its changes of waiting rows that another may have claimed since.
		a = c.newAttempt(m, AttemptNote)
	}
	if a != nil {
		a.Journal, a.Verdict = m.takeJournal(), m.takeVerdict()
		w.Attempts = append(w.Attempts, *a)
	}
	c.recordRows(m, w, leaving)
	if leaving {
		w.last = true
		m.life = lifeLeaving
		c.stopTimers(m)
	}
	return w
}

func (c *core) recordEnd(m *message, w *write) {
	c.halt(m, "the message has ended")
	everyone := make([]int32, len(m.recipients))
	for i := range everyone {
		everyone[i] = int32(i)
	}
	w.Outcomes = append(w.Outcomes, Outcome{
		Message: m.row.ID, Recipients: m.ends(everyone), Journal: m.takeJournal(), Verdict: m.takeVerdict(), Time: c.now,
	})
	for _, r := range m.rows {
		if r.stored {
			w.Unwaits = append(w.Unwaits, r.WaitKey)
		}
	}
	m.rows = nil
	w.last = true
	m.life = lifeLeaving
}

func (c *core) recordRows(m *message, w *write, leaving bool) {
	m.prune()
	left := 0
	for key, r := range m.rows {
		switch {
		case r.dropped:
			if r.stored {
				w.Unwaits = append(w.Unwaits, r.WaitKey)
			}
			delete(m.rows, key)
		case r.dirty:
			r.Owned = !leaving
			r.dirty, r.stored = false, true
			w.Waits = append(w.Waits, r.Wait)
			left++
		default:
			left++
		}
	}
	if leaving && left > len(w.Waits) {
		w.Releases = append(w.Releases, m.row.ID)
	}
}

func (c *core) newAttempt(m *message, kind AttemptKind) *Attempt {
	return &Attempt{ID: c.mintID(c.now), Message: m.row.ID, Kind: kind, Time: c.now}
}

// commit writes what has changed in a message that is ours and has not ended; otherwise it does nothing.
func (c *core) commit(m *message, a *Attempt, then func()) {
	if m.life == lifeLive {
		c.push(c.record(m, a, then))
	}
}

// push hands a write to the engine, after those of the same message that came before: a message has one write
// outstanding, so that its rows become durable in order.
func (c *core) push(w *write) {
	if w.msg.writing {
		w.msg.writes = append(w.msg.writes, w)
		return
	}
	w.msg.writing = true
	c.decide(decision{kind: decideWrite, write: w})
}

// written says that a write is durable.
type written struct{ write *write }

func (e written) apply(c *core) {
	w, m := e.write, e.write.msg
	if c.messages[m.row.ID] != m {
		return // it was forgotten when the incarnation was lost
	}
	m.writing = false
	if len(m.writes) == 0 {
		m.taken = nil
	} else {
		next := m.writes[0]
		m.writes = m.writes[1:]
		c.push(next)
	}
	if w.then != nil {
		w.then()
	}
	for _, b := range w.born {
		c.born(b)
	}
	if w.last {
		c.left(m)
	}
}

// left ends a message's stay in memory.
func (c *core) left(m *message) {
	c.forget(m)
	withdrawn := slices.ContainsFunc(m.recipients, func(r recipient) bool {
		return r.state == mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN
	})
	c.ended.add(m.row.ID, withdrawn)
	if m.reload != nil {
		c.load(m.reload)
	}
}

// refused says that the database refuses the rows of a write. Nothing of it was written.
type refused struct {
	write *write
	err   error
}

func (e refused) apply(c *core) {
	m := e.write.msg
	if c.messages[m.row.ID] != m {
		return
	}
	m.writing, m.writes = false, nil
	if e.write.accept {
		c.refuse(m, e.err)
		return
	}
	c.quarantineRefused(m, e.err)
}

// quarantineRefused ends a message whose rows the database refuses, with as little of it in the row as can be. Where
// even that is refused, the message stays in memory, so that it is found again after this process.
func (c *core) quarantineRefused(m *message, err error) {
	c.halt(m, "the message is quarantined")
	c.decide(decision{kind: decideLog, id: m.row.ID, text: "The database refuses rows of a message", err: err})
	if m.life == lifeParked {
		return
	}
	m.journal, m.verdictNew = nil, false
	for i := range m.recipients {
		m.recipients[i].reply = nil
		if !isEnded(m.recipients[i].state) {
			m.recipients[i].state = mailv1.RecipientState_RECIPIENT_STATE_QUARANTINED
		}
	}
	c.note(m, eventQuarantined, bySpool, nil, "the database refuses its rows")
	w := c.record(m, nil, nil)
	m.life = lifeParked
	c.push(w)
}
