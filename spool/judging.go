package spool

import (
	"fmt"
	"strings"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// judgesFirst tells whether a message is judged before it is made durable, so that its client may be refused (design.md
// 4.2). Content that stands in chunks is not whole in the store before its message is; and a message that was submitted
// before may be durable, so that it can't be refused any more.
func (c *core) judgesFirst(e submitted) bool {
	return c.cfg.VerdictWait > 0 && !c.held && !c.diverting && !e.again && e.row.Content != nil &&
		c.judgingRoom(e.row) && c.serves(StageParser) && c.serves(StageFilter) && c.expectedVerdict() < c.cfg.VerdictWait
}

// What may be judged at a time before it is durable: far less than what a spool leaves unanswered, of all submissions and of
// those of one gateway (see spoolrpc), so that slow verdicts keep nobody else from being heard.
const (
	maxJudging       = 1024
	maxJudgingOctets = 8 << 20
)

// judgingRoom tells whether one more message may be judged before it is durable.
func (c *core) judgingRoom(row Message) bool {
	most := min(maxJudgingOctets, int64(c.cfg.Backlog)/2)
	return c.judging < maxJudging && c.judgingOctets+int64(len(row.Content)) <= most
}

// serves tells whether a stage has a worker that takes jobs.
func (c *core) serves(stage Stage) bool {
	for _, p := range c.peers {
		if p.stage == stage && !p.draining {
			return true
		}
	}
	return false
}

// expectedVerdict is how long a verdict will take: as long as the last ones did, or as long as the job at the head of
// a queue has waited by now.
func (c *core) expectedVerdict() time.Duration {
	expected := c.pace
	for _, stage := range []Stage{StageParser, StageFilter} {
		if j, ok := c.stages[stage].ready.peek(); ok {
			expected = max(expected, c.now.Sub(j.readyAt))
		}
	}
	return expected
}

// learnPace takes the time that a verdict took into account, once for each. A message that runs alone or was tried again
// tells nothing about the others.
func (c *core) learnPace(f *front, took time.Duration) {
	if f.learned || f.failures > 0 || f.msg.suspect {
		return
	}
	f.learned = true
	// However long an outage was, a few verdicts in time end what is expected after it.
	took = min(took, 2*c.cfg.VerdictWait)
	c.pace += (took - c.pace) / 8
}

// judgeFirst has a message parsed and filtered before it is made durable.
func (c *core) judgeFirst(m *message) {
	m.life = lifeJudging
	c.judging++
	c.judgingOctets += int64(len(m.row.Content))
	wait := min(c.cfg.VerdictWait, m.waiters[0].deadline.Sub(c.now)/2)
	m.unjudged = c.timers.start(c.now.Add(wait), func() {
		if wait == c.cfg.VerdictWait {
			c.learnPace(m.front, 2*wait) // there may never be a verdict to learn from
		}
		c.makeDurable(m, nil)
	})
	c.judge(m, m.everyone())
}

// judgedFirst refuses a message by its verdict, or makes it durable with it. A message of which some recipients are
// refused is accepted: SMTP has one reply for all (RFC 5321, section 3.3), and those are held.
func (c *core) judgedFirst(m *message, recipients []int32) {
	s := c.sortVerdict(m, recipients)
	if reply, decisive := m.refusal(s); reply != nil {
		for _, w := range m.waiters {
			c.answer(w, Receipt{}, reply)
		}
		c.noteRefusal(m, decisive, reply)
		c.dismiss(m, "")
		return
	}
	m.row.Verdict, m.verdictNew = m.verdict, false
	c.makeDurable(m, nil)
}

// refusal is what the client is told where no recipient may have the message, and the recipient whose verdict says so; nil
// where one may. Where some are only refused for now, it is told to come again.
func (m *message) refusal(s sorted) (reply *smtpreply.Error, decisive int32) {
	if len(s.accept)+len(s.discard) > 0 {
		return nil, 0
	}
	for _, r := range s.hold {
		if m.verdict.GetRecipients()[r].GetAction() == mailv1.Action_ACTION_HOLD {
			return nil, 0
		}
	}
	if len(s.later) > 0 {
		decisive = s.later[0]
		return refusalOf(m.recipients[decisive].reply, 4, smtpreply.New(451, "4.7.1", "Refused by policy for now, try again later")), decisive
	}
	decisive = s.hold[0]
	return refusalOf(m.recipients[decisive].reply, 5, smtpreply.New(550, "5.7.1", "Refused by policy")), decisive
}

// refusalOf is the filter's own reply where it is one of a class: 4 or 5. The codes of mail systems (RFC 3463, section 3.4)
// are those of spools that ail: a gateway would offer the message to the next one, which must not judge it again.
func refusalOf(reply *mailv1.Reply, class int32, otherwise *smtpreply.Error) *smtpreply.Error {
	if reply.GetCode()/100 != class {
		return otherwise
	}
	if strings.HasPrefix(reply.GetEnhancedCode(), fmt.Sprintf("%d.3.", class)) {
		return smtpreply.New(int(reply.GetCode()), fmt.Sprintf("%d.7.1", class), reply.GetText())
	}
	return smtpreply.FromReply(reply)
}

// endJudging takes note that a message is no longer judged before it is durable.
func (c *core) endJudging(m *message) {
	if m.life != lifeJudging {
		return
	}
	m.life = lifeCommitting
	c.timers.stop(m.unjudged)
	c.judging--
	c.judgingOctets -= int64(len(m.row.Content))
}

// dismiss forgets a message that was never handed to the store.
func (c *core) dismiss(m *message, why string) {
	c.endJudging(m)
	m.waiters = nil
	c.halt(m, why)
	c.forget(m)
}

// stopJudging makes a message durable whose judging met a fault: it is judged anew after that.
func (c *core) stopJudging(m *message) {
	c.halt(m, "it is judged after it was accepted")
	if m.life == lifeJudging {
		c.makeDurable(m, nil)
	}
}

// judgedByNobody makes the messages durable that wait for a verdict of a stage which has no workers any more.
func (c *core) judgedByNobody(stage Stage) {
	if stage == StageDeliver || c.serves(stage) {
		return
	}
	c.judgeAfter()
}

// judgeAfter makes all messages durable that are being judged.
func (c *core) judgeAfter() {
	for _, m := range c.messages {
		if m.life == lifeJudging {
			c.makeDurable(m, nil)
		}
	}
}

// goOn sets a message going that is durable: by its verdict, or by what it was being judged for, or to be judged.
func (c *core) goOn(m *message) {
	switch {
	case m.allEnded(): // put aside meanwhile
	case m.verdict != nil && m.front == nil:
		c.followVerdict(m, &front{msg: m, recipients: m.everyone()})
	case m.front == nil:
		c.judge(m, m.everyone())
	default: // the job is under way
	}
	if m.suspect { // a later owner must know as well
		c.commit(m, c.newAttempt(m, AttemptNote), nil)
	}
}
