package judge

import (
	"slices"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// isDSN tells whether a message is a notification: only those have the null reverse-path here.
func (m *Message) isDSN() bool { return m.Sender == "" }

// message judges how a message ended. (P2.)
func (j *hearing) message(m *Message) {
	j.sent(m)
	switch {
	case len(m.Outcomes) == 0:
		j.add(Unfinished, m.ID, "it has not ended; it waits for %v, and its first owner was %d", m.Waits, m.Owner)
		return
	case len(m.Outcomes) > 1:
		j.add(Unfinished, m.ID, "it has ended %d times", len(m.Outcomes))
	case len(m.Waits) > 0:
		j.add(Unfinished, m.ID, "it has ended, but still waits for %v", m.Waits)
	}
	j.journal(m)
	states := m.Outcomes[0].States
	if len(states) != len(m.Recipients) {
		j.add(Unfinished, m.ID, "it has %d recipients and %d outcomes", len(m.Recipients), len(states))
		return
	}
	for i, state := range states {
		j.recipient(m, i, state)
	}
}

// sent judges whether a message is what a client sent, to whom it was sent. Of a mail that was not accepted the client's
// ledger names the recipients too, where it got so far that the pipeline could have it.
func (j *hearing) sent(m *Message) {
	e := j.entries[m.LoadID]
	switch {
	case e == nil:
		j.add(Strange, m.ID, "it is mail %q, which nobody sent as this message", m.LoadID)
		return
	case m.isDSN():
		if !slices.Equal(m.Recipients, []string{e.Sender}) {
			j.add(Strange, m.ID, "it returns a mail of %s and is for %v", e.Sender, m.Recipients)
		}
		j.reported(m)
		return
	case e.Outcome == ledger.Accepted && e.MessageID != m.ID:
		j.add(Strange, m.ID, "it is mail %q, which nobody sent as this message", m.LoadID)
	}
	if m.Sender != e.Sender {
		j.add(Strange, m.ID, "it was sent by %s, and is from %s", e.Sender, m.Sender)
	}
	if lost := without(e.Recipients, m.Recipients); len(lost) > 0 {
		j.add(Lost, m.ID, "its recipients %v were taken at RCPT, but it is not for them", lost)
	}
	if extra := without(m.Recipients, e.Recipients); len(extra) > 0 {
		j.add(Strange, m.ID, "it is for %v, to whom it was not sent, or not as often", extra)
	}
	if e.Outcome == ledger.Refused && !j.calm.IsZero() && e.Start.After(j.calm) && m.ended("delivered") {
		j.add(Duplicate, m.ID, "nothing was broken any more, but its client was told %q, and will send what has been sent again", e.Reply)
	}
}

// without returns what the first list has more of than the second.
func without(list, other []string) []string {
	count := map[string]int{}
	for _, s := range other {
		count[s]++
	}
	var more []string
	for _, s := range list {
		if count[s]--; count[s] < 0 {
			more = append(more, s)
		}
	}
	return more
}

// ended tells whether a recipient ended in a state.
func (m *Message) ended(state string) bool {
	return slices.ContainsFunc(m.Outcomes, func(o Outcome) bool { return slices.Contains(o.States, state) })
}

// arrival judges something that came out: that it is whole, was sent, and to whom it came.
func (j *hearing) arrival(a *ledger.Arrival) {
	if a.Fault != "" {
		j.add(Changed, a.MessageID, "%s got mail %s at %s: %s", a.Recipient, a.ID, clock(a.Time), a.Fault)
	}
	e, m := j.entries[a.ID], j.messages[a.MessageID]
	if a.MessageID == "" { // not everything that comes out names its message
		m = j.mails[a.ID]
	}
	switch {
	case e == nil:
		j.add(Strange, a.MessageID, "%s got mail %q at %s, which nobody sent", a.Recipient, a.ID, clock(a.Time))
	case a.Report:
		if a.Recipient != e.Sender {
			j.add(Strange, a.MessageID, "%s got a notification at %s about a mail of %s", a.Recipient, clock(a.Time), e.Sender)
		}
	case m == nil:
		j.add(Strange, a.MessageID, "%s got mail %s at %s as a message that there is not", a.Recipient, a.ID, clock(a.Time))
	case m.LoadID != a.ID:
		j.add(Changed, m.ID, "%s got mail %s at %s as this message, which is mail %s", a.Recipient, a.ID, clock(a.Time), m.LoadID)
	case !slices.Contains(m.Recipients, a.Recipient):
		j.add(Strange, m.ID, "%s got it at %s, but it is for %v", a.Recipient, clock(a.Time), m.Recipients)
	}
}
