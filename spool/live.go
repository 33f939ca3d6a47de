package spool

import mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"

// live tells what only memory knows of a message.
func (c *core) live(id ID) (Live, bool) {
	m := c.messages[id]
	if m == nil || m.life < lifeLive {
		return Live{}, false
	}
	l := Live{
		Recipients: make([]RecipientStatus, len(m.recipients)),
		Journal:    append(append([]*mailv1.JournalEntry(nil), m.taken...), m.journal...),
		Parsed:     m.parsed, Verdict: m.verdict,
	}
	for i := range m.recipients {
		l.Recipients[i] = RecipientStatus{State: m.recipients[i].state, LastReply: m.recipients[i].reply}
	}
	for _, r := range m.rows {
		for _, i := range m.unended(r.Recipients) {
			s := l.Recipients[i].State
			if s == mailv1.RecipientState_RECIPIENT_STATE_DEFERRED || s == mailv1.RecipientState_RECIPIENT_STATE_HELD {
				l.Recipients[i].NextAt = r.NextAt
			}
		}
	}
	return l, true
}

// content finds the message whose content a token lets its holder read. Where its content is nil, that stands in the
// store. last says that nobody else is about to read it: the job is the message's only delivery.
func (c *core) content(token []byte) (row Message, last, ok bool) {
	j := c.jobs[string(token)]
	if j == nil || j.counted {
		return Message{}, false, false
	}
	return j.msg.row, j.stage == StageDeliver && len(j.msg.deliveries) == 1, true
}
