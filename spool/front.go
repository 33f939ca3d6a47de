package spool

import (
	"slices"
	"strings"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// front is the recipients of a message that wait for their verdict. The message is parsed and filtered for them.
type front struct {
	msg        *message
	recipients []int32
	phase      Stage // StageParser or StageFilter
	state      unitState
	job        *job
	timer      *timer
	since      time.Time // when it was first ready
	learned    bool      // how long it takes is taken into account, see learnPace
	failures   int       // of the phase
	attempts   int32     // times that a filter said: later
}

// judge parses and filters a message for recipients.
func (c *core) judge(m *message, recipients []int32) {
	f := m.front
	if f == nil {
		f = &front{msg: m}
		if r := m.rows[DestinationFilter]; r != nil {
			f.attempts = r.Attempts
		}
		m.front = f
	} else {
		recipients = append(recipients, f.recipients...)
	}
	f.recipients, f.phase, f.failures, f.since, f.learned = recipients, StageParser, 0, c.now, false
	if m.parsed != nil {
		f.phase = StageFilter
	}
	m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_ACTIVE)
	if !c.now.Before(c.expiry(m)) {
		c.expireFront(f)
		return
	}
	c.readyFront(f)
}

// readyFront puts the next job of a front into its stage's queue.
func (c *core) readyFront(f *front) {
	c.timers.stop(f.timer)
	f.state = unitReady
	f.job = &job{stage: f.phase, msg: f.msg, front: f, readyAt: c.now}
	if f.msg.suspect {
		c.stages[f.phase].alone.push(f.job)
		return
	}
	c.stages[f.phase].ready.push(f.job)
}

// expireFront turns recipients whose time is up into notifications.
func (c *core) expireFront(f *front) {
	m := f.msg
	c.timers.stop(f.timer)
	c.dropJob(f.job, "")
	m.front = nil
	c.deliver(m, m.unended(f.recipients))
}

// parsed takes a parse result.
func (c *core) parsed(j *job, p *mailv1.ParsedMessage) {
	m := j.msg
	m.parsed = p
	c.charge(m, wire.Size(p))
	c.noteJob(j, eventParsed, nil, defectsText(p.GetDefects()))
	if m.life >= lifeLive {
		c.tellSearch(m)
	}
	c.filterNext(j.front)
}

// tellSearch writes what people look for in a message beside its row, which must be durable.
func (c *core) tellSearch(m *message) {
	if s := searchOf(m.row.ID, m.parsed); s != (Search{Message: m.row.ID}) {
		c.decide(decision{kind: decideSearch, search: s})
	}
}

// defectsText names the kinds of defects, each once, as many as a line takes.
func defectsText(defects []*mailv1.Defect) string {
	const most = 8
	var kinds []string
	for _, d := range defects {
		if !slices.Contains(kinds, d.GetKind()) {
			kinds = append(kinds, d.GetKind())
		}
		if len(kinds) > most {
			kinds[most] = "…"
			break
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return "defects: " + strings.Join(kinds, ", ")
}

func (c *core) filterNext(f *front) {
	f.phase, f.failures = StageFilter, 0
	f.msg.suspect = false
	c.readyFront(f)
}

// searchOf cuts what people look for from a parse result.
func searchOf(id ID, p *mailv1.ParsedMessage) Search {
	s := Search{Message: id, Subject: cut(p.GetSubject(), 998), HeaderMessageID: cut(p.GetMessageId(), 998)}
	if from := p.GetFrom(); len(from) > 0 {
		s.From = cut(from[0].GetAddress(), 320)
	}
	return s
}

// frontFailed takes note of a job that a worker could not do. It is given out again a few times, each time later; then
// the message goes on without: unparsed to the filter, unfiltered to a later try.
func (c *core) frontFailed(f *front, why string) {
	m := f.msg
	f.failures++
	c.noteJob(f.job, eventFailed, nil, cut(why, 500))
	f.job = nil
	if m.life < lifeLive {
		c.stopJudging(m)
		return
	}
	if f.failures < c.cfg.JobTries {
		f.state = unitReady
		f.timer = c.timers.start(c.now.Add(time.Second<<min(f.failures-1, 6)), func() { c.readyFront(f) })
		return
	}
	if f.phase == StageParser {
		c.note(m, eventParsed, bySpool, nil, "not parsed: no worker could do it")
		c.filterNext(f)
		return
	}
	reply := &mailv1.Reply{Code: 451, EnhancedCode: "4.3.0", Text: "The message could not be filtered"}
	for _, r := range f.recipients {
		m.recipients[r].reply = reply
	}
	c.deferFilter(f, f.recipients)
	c.commit(m, nil, nil)
}

// deferFilter makes recipients wait to be filtered again. The row goes out with the next write.
func (c *core) deferFilter(f *front, recipients []int32) {
	m := f.msg
	f.attempts++
	f.recipients, f.state, f.job = recipients, unitWaiting, nil
	at := c.backOff(f.attempts)
	if end := c.expiry(m); at.After(end) {
		at = end
	}
	m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_DEFERRED)
	c.note(m, eventDeferred, StageFilter.String(), recipients, "filtered again later")
	m.setRow(Wait{
		WaitKey: WaitKey{Destination: DestinationFilter}, Reason: WaitFilter, Recipients: recipients,
		Attempts: f.attempts, NextAt: at, ExpiresAt: c.expiry(m), LastReply: m.recipients[recipients[0]].reply,
	})
	f.timer = c.timers.start(at, func() { c.wakeFront(f) })
}

func (c *core) wakeFront(f *front) {
	m := f.msg
	recipients := f.recipients
	f.recipients = nil
	c.judge(m, recipients)
}

// cut shortens a text to at most n octets, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
