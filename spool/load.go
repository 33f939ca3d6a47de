package spool

import (
	"bytes"
	"slices"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// loaded are messages that were claimed, without those for some destinations. more says that there may be others to claim.
type loaded struct {
	inc      Incarnation
	messages []*Stored
	without  []string
	more     bool
}

func (e loaded) apply(c *core) {
	if e.inc != c.inc {
		return // claimed for an incarnation that is lost
	}
	if !e.more && c.room() > 0 {
		c.diverting = false
	}
	for _, s := range e.messages {
		c.load(s)
	}
	if !e.more {
		c.sched.claimed(c.now, e.messages, e.without)
	}
}

func (c *core) load(s *Stored) {
	if m := c.messages[s.ID]; m != nil {
		switch m.life {
		case lifeJudging:
			m.reload = s // it is durable already: its own row will be refused
			c.makeDurable(m, nil)
			return
		case lifeLeaving, lifeCommitting:
			m.reload = s // the write that let it go is durable, as we are about to hear
			return
		default:
		}
		c.decide(decision{kind: decideLog, id: s.ID, text: "A message was claimed that is here already"})
		return
	}
	if s.Err != nil {
		c.loadBroken(s)
		return
	}
	row := s.Message
	if len(row.Content) > InlineLimit {
		row.Content = nil
	}
	m := newMessage(row)
	m.life, m.verdict = lifeLive, row.Verdict
	c.keep(m)
	c.answerExpected(m)
	l := loader{c: c, m: m, stored: s, placed: map[int32]bool{}}
	l.readAttempts()
	l.readWaits()
	l.start()
}

// answerExpected accepts submissions of a message that has become ours.
func (c *core) answerExpected(m *message) {
	list := c.expected[m.row.ID]
	delete(c.expected, m.row.ID)
	for _, w := range list {
		c.answer(w, Receipt{}, nil)
	}
}

// loadTries is how often a message that can't be decoded is loaded before it is put aside.
const loadTries = 3

// loadBroken puts a message off that could not be decoded, and aside at last, so that it holds up no other.
func (c *core) loadBroken(s *Stored) {
	m := &message{row: Message{ID: s.ID, Owner: s.Owner, Accepted: c.now}, life: lifeLive, rows: map[string]*row{}}
	tries, count := int32(0), max(len(s.Envelope.GetRecipients()), 1)
	for _, w := range s.Waits {
		m.rows[w.Destination] = &row{Wait: w, stored: true}
		tries = max(tries, w.Attempts)
		for _, r := range w.Recipients {
			count = max(count, int(r)+1)
		}
	}
	// The outcome must name recipients: all that are known of, or one where none is.
	m.recipients = make([]recipient, count)
	c.decide(decision{kind: decideLog, id: s.ID, text: "A message can't be loaded", err: s.Err})
	c.keep(m)
	if tries+1 >= loadTries {
		endAll(m, m.everyone(), mailv1.RecipientState_RECIPIENT_STATE_QUARANTINED)
		c.note(m, eventQuarantined, bySpool, nil, "it can't be loaded")
		c.push(c.record(m, nil, nil))
		return
	}
	m.life = lifeLeaving
	w := &write{msg: m, last: true, at: c.now.UnixNano()}
	w.Attempts = append(w.Attempts, *c.newAttempt(m, AttemptNote)) // see record
	for _, r := range m.rows {
		r.Attempts, r.NextAt, r.Owned = tries+1, c.now.Add(time.Minute), false
		w.Waits = append(w.Waits, r.Wait)
	}
	c.push(w)
}

// loader sorts the recipients of a loaded message by what is known of them.
type loader struct {
	c       *core
	m       *message
	stored  *Stored
	placed  map[int32]bool // recipients that have their place
	attempt map[string]int32
	adopted bool

	orphans []*job
	ready   []*delivery
	judge   []int32
	discard []int32
	endHold bool
}

// readAttempts finds what has ended, the last verdict, and permits without a result.
func (l *loader) readAttempts() {
	m := l.m
	var open []*Attempt // permits without a result
	l.attempt = map[string]int32{}
	for i := range l.stored.Attempts {
		a := &l.stored.Attempts[i]
		if a.Verdict != nil {
			m.verdict = a.Verdict
		}
		for _, e := range a.Ended {
			m.end(e.Recipient, e.State, e.Reply)
		}
		for _, e := range a.Journal {
			switch e.GetEvent() {
			case eventFailed:
				m.countBounceFailure(e)
			case eventWorkerLost:
				m.suspect = true
			case eventFiltered:
				m.suspect = false
			}
		}
		switch a.Kind {
		case AttemptPermit:
			open = append(open, a)
			l.attempt[a.Destination] = max(l.attempt[a.Destination], a.Number)
		case AttemptResult:
			if a.Destination != "" {
				open = slices.DeleteFunc(open, a.answers)
				l.attempt[a.Destination] = max(l.attempt[a.Destination], a.Number)
			}
		case AttemptNote:
		}
	}
	for _, a := range slices.Backward(open) { // the latest permit for a recipient is the one that counts
		if recipients := l.place(a.Recipients); len(recipients) > 0 {
			l.orphan(a.Destination, recipients, a)
		}
	}
}

// answers tells whether a result is that of a permit, or of an attempt that was made in its place since its worker never
// saw it: one for all of its recipients. Another job for the same destination may be out at the same time.
func (a *Attempt) answers(permit *Attempt) bool {
	return bytes.Equal(a.Token, permit.Token) || a.Destination == permit.Destination && a.Number >= permit.Number &&
		!slices.ContainsFunc(permit.Recipients, func(r int32) bool { return !slices.Contains(a.Recipients, r) })
}

// orphan makes a delivery of a permit without a result: its worker may still tell.
func (l *loader) orphan(dest string, recipients []int32, a *Attempt) {
	d := &delivery{msg: l.m, dest: dest, recipients: recipients, attempts: a.Number - 1, state: unitOut}
	j := &job{
		stage: StageDeliver, msg: l.m, delivery: d, token: a.Token, permit: permitGranted, freed: true,
		sent: &Job{Attempt: a.Number, Destination: dest},
	}
	d.job = j
	l.m.deliveries = append(l.m.deliveries, d)
	l.orphans = append(l.orphans, j)
}

// place returns those recipients that have neither ended nor a place, and gives them one.
func (l *loader) place(recipients []int32) []int32 {
	var left []int32
	for _, r := range l.m.unended(recipients) {
		if !l.placed[r] {
			l.placed[r] = true
			left = append(left, r)
		}
	}
	return left
}

// readWaits gives the recipients of waiting rows their place: rows of destinations first, as they know best.
func (l *loader) readWaits() {
	m, c := l.m, l.c
	m.rows = map[string]*row{}
	for i := range l.stored.Waits {
		w := l.stored.Waits[i]
		m.rows[w.Destination] = &row{Wait: w, stored: true}
		if w.Destination == DestinationAll && l.stored.Owner != c.inc {
			l.adopted = true
		}
	}
	for pass := range 2 {
		for dest, r := range m.rows {
			if rank(dest) != pass {
				continue
			}
			recipients := l.place(r.Recipients)
			for _, i := range recipients {
				if r.LastReply != nil && m.recipients[i].reply == nil {
					m.recipients[i].reply = r.LastReply
				}
			}
			if len(recipients) > 0 {
				l.placeWait(r, recipients)
			}
		}
	}
	l.placeRest()
}

func (l *loader) placeWait(r *row, recipients []int32) {
	m, c := l.m, l.c
	due := !r.NextAt.After(c.now)
	switch r.Destination {
	case DestinationHold:
		m.held = recipients
		m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_HELD)
		l.endHold = due
	case DestinationFilter:
		if due {
			l.judge = recipients
			return
		}
		m.front = &front{msg: m, recipients: recipients, phase: StageParser, state: unitWaiting, attempts: r.Attempts}
		m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_DEFERRED)
	default:
		d := &delivery{
			msg: m, dest: r.Destination, recipients: recipients,
			attempts: max(r.Attempts, l.attempt[r.Destination]), state: unitWaiting,
		}
		if r.ExpiresAt.Before(c.expiry(m)) && !r.ExpiresAt.IsZero() {
			d.expires = r.ExpiresAt
		}
		m.deliveries = append(m.deliveries, d)
		m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_DEFERRED)
		d.claimed = true
		if due {
			d.state = unitReady
			l.ready = append(l.ready, d)
		}
	}
}

// placeRest gives a place to the recipients that were under way with an owner that is gone: where the verdict put them.
func (l *loader) placeRest() {
	m, c := l.m, l.c
	rest := l.place(m.everyone())
	if len(rest) == 0 {
		return
	}
	if len(m.verdict.GetRecipients()) != len(m.recipients) {
		l.judge = append(l.judge, rest...)
		return
	}
	s := c.sortVerdict(m, rest)
	l.judge = append(l.judge, s.later...)
	if len(s.hold) > 0 {
		c.hold(m, s.hold, StageFilter.String())
		l.endHold = l.endHold || !c.holdEnd(m).After(c.now)
	}
	l.discard = s.discard
	destinations, groups := m.byDestination(s.accept)
	for _, dest := range destinations {
		d := m.addDelivery(dest, groups[dest])
		d.attempts = max(d.attempts, l.attempt[dest])
		d.state = unitReady
		l.ready = append(l.ready, d)
	}
}

// start sets the message going.
func (l *loader) start() {
	m, c := l.m, l.c
	if l.adopted {
		c.note(m, eventAdopted, bySpool, nil, "")
	}
	for _, j := range l.orphans {
		c.jobs[string(j.token)] = j
		c.awaitResult(j)
	}
	if len(m.held) > 0 && !l.endHold {
		c.watchHold(m)
	}
	for _, d := range m.deliveries {
		if d.state == unitWaiting {
			c.wake(d, m.rows[d.dest].NextAt)
		}
	}
	if f := m.front; f != nil {
		f.timer = c.timers.start(m.rows[DestinationFilter].NextAt, func() { c.wakeFront(f) })
	}
	if len(l.judge) > 0 {
		if m.front != nil {
			c.timers.stop(m.front.timer)
			m.front.state = unitReady
		} else {
			m.front = &front{msg: m, state: unitReady}
			if r := m.rows[DestinationFilter]; r != nil {
				m.front.attempts = r.Attempts
			}
		}
	}
	// Everything has its place and its state: from here on writes may come. The first says who has ended.
	if len(l.discard) > 0 {
		c.discard(m, l.discard)
		c.recordEnds(m, l.discard)
	}
	for _, d := range l.ready {
		c.due(d)
	}
	if len(l.judge) > 0 && m.life == lifeLive {
		c.judge(m, l.judge)
	}
	if l.endHold && m.life == lifeLive {
		c.endHold(m)
	}
	for _, order := range c.orders[m.row.ID] {
		commanded{order}.apply(c)
	}
	if !c.active(m) && !l.early() {
		c.commit(m, nil, nil)
	}
}

// early tells whether nothing of the message is due or soon will be: the store's clock is ahead of what we know of it. Given
// back, the message would be claimed again at once, and again, until we know better.
func (l *loader) early() bool {
	for _, r := range l.m.rows {
		if !r.NextAt.After(l.c.now.Add(l.c.cfg.lookAhead())) {
			return false
		}
	}
	return true
}
