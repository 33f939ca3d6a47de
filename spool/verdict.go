package spool

import (
	"fmt"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// sorted is a front's recipients by what is to become of them.
type sorted struct{ accept, hold, later, discard []int32 }

// filtered takes a verdict.
func (c *core) filtered(j *job, v *mailv1.Verdict) {
	m, f := j.msg, j.front
	if len(v.GetRecipients()) != len(m.recipients) {
		c.frontFailed(f, fmt.Sprintf("a verdict about %d of %d recipients", len(v.GetRecipients()), len(m.recipients)))
		return
	}
	m.suspect = false
	f.job = nil
	c.noteJob(j, eventFiltered, f.recipients, verdictText(v, f.recipients))
	c.mergeVerdict(m, v, f.recipients)
	c.learnPace(f, c.now.Sub(f.since))
	m.front = nil
	switch m.life {
	case lifeJudging:
		c.judgedFirst(m, f.recipients)
	case lifeCommitting: // it goes on by its verdict once it is durable
	default:
		c.followVerdict(m, f)
	}
}

// followVerdict does what the verdict says about a front's recipients.
func (c *core) followVerdict(m *message, f *front) {
	s := c.sortVerdict(m, f.recipients)
	if len(s.later) > 0 {
		m.front = f
		c.deferFilter(f, s.later)
	}
	parked := c.follow(m, s)
	if !parked && len(s.later)+len(s.hold)+len(s.discard) == 0 {
		return // the verdict goes out with the permit
	}
	var a *Attempt
	if len(s.discard) > 0 {
		a = c.newAttempt(m, AttemptResult)
		a.Recipients, a.Ended = s.discard, m.ends(s.discard)
	}
	c.commit(m, a, nil)
}

// mergeVerdict keeps what was decided earlier about other recipients.
func (c *core) mergeVerdict(m *message, v *mailv1.Verdict, recipients []int32) {
	if m.verdict != nil && len(recipients) < len(m.recipients) {
		merged := &mailv1.Verdict{Edits: v.GetEdits(), Results: v.GetResults()}
		merged.Recipients = append(merged.Recipients, m.verdict.GetRecipients()...)
		for _, r := range recipients {
			merged.Recipients[r] = v.GetRecipients()[r]
		}
		v = merged
	}
	m.verdict, m.verdictNew = v, true
	c.charge(m, wire.Size(v))
}

func (c *core) sortVerdict(m *message, recipients []int32) sorted {
	var s sorted
	for _, r := range m.unended(recipients) {
		v := m.verdict.GetRecipients()[r]
		if v.GetReply() != nil {
			m.recipients[r].reply = v.GetReply()
		}
		switch v.GetAction() {
		case mailv1.Action_ACTION_ACCEPT:
			s.accept = append(s.accept, r)
		case mailv1.Action_ACTION_REJECT, mailv1.Action_ACTION_HOLD:
			s.hold = append(s.hold, r)
		case mailv1.Action_ACTION_DISCARD:
			s.discard = append(s.discard, r)
		default:
			s.later = append(s.later, r)
		}
	}
	return s
}

// follow does what a verdict says, but for the recipients that are to be filtered later.
func (c *core) follow(m *message, s sorted) (parked bool) {
	if len(s.hold) > 0 {
		c.hold(m, s.hold, StageFilter.String())
	}
	c.discard(m, s.discard)
	return c.deliver(m, s.accept)
}

// discard ends recipients by policy. The next write must say so.
func (c *core) discard(m *message, recipients []int32) {
	if len(recipients) == 0 {
		return
	}
	endAll(m, recipients, mailv1.RecipientState_RECIPIENT_STATE_DISCARDED)
	c.note(m, eventDiscarded, StageFilter.String(), recipients, "")
}

// hold keeps recipients until an operator releases them or their hold ends. The row goes out with the next write.
//
// A message that is refused after its 250 is held as well, and nobody is told: a notification would go to whomever the
// sender claims to be (design.md 4.2).
func (c *core) hold(m *message, recipients []int32, by string) {
	m.held = append(m.held, recipients...)
	m.setState(recipients, mailv1.RecipientState_RECIPIENT_STATE_HELD)
	c.note(m, eventHeld, by, recipients, "")
	m.setRow(Wait{
		WaitKey: WaitKey{Destination: DestinationHold}, Reason: WaitHold, Recipients: m.held,
		NextAt: c.holdEnd(m), ExpiresAt: c.holdEnd(m), LastReply: m.recipients[recipients[0]].reply,
	})
	c.watchHold(m)
}

func (c *core) watchHold(m *message) {
	c.timers.stop(m.holdTimer)
	m.holdTimer = c.timers.start(c.holdEnd(m), func() { c.endHold(m) })
}

// endHold ends the recipients that nobody released, without notification.
func (c *core) endHold(m *message) {
	recipients := m.unended(m.held)
	m.held = nil
	for _, r := range recipients {
		m.end(r, mailv1.RecipientState_RECIPIENT_STATE_EXPIRED, nil)
	}
	c.note(m, eventExpired, bySpool, recipients, "its hold ended")
	c.recordEnds(m, recipients)
}

// verdictText tells a verdict in words.
func verdictText(v *mailv1.Verdict, recipients []int32) string {
	var parts []string
	counts := map[string]int{}
	for _, r := range recipients {
		rv := v.GetRecipients()[r]
		text := strings.ToLower(strings.TrimPrefix(rv.GetAction().String(), "ACTION_"))
		if rv.GetRule() != "" {
			text += " by " + rv.GetRule()
		}
		if counts[text]++; counts[text] == 1 {
			parts = append(parts, text)
		}
	}
	return cut(strings.Join(parts, ", "), 500)
}
