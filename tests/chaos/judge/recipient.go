package judge

import (
	"slices"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// recipient judges how a recipient ended, and how often the message came to it.
func (j *hearing) recipient(m *Message, place int, state string) {
	recipient := m.Recipients[place]
	copies, what := j.arrived(m, recipient)
	j.copied(m, place, state, copies, what)
	switch state {
	case "delivered":
		if accepted(copies) < j.expected(m) {
			j.add(Undelivered, m.ID, "%s %s ended as delivered, but did not arrive", what, recipient)
		}
	case "bounced", "expired":
		j.bounced(m, recipient, state)
	case "quarantined":
		// One death makes it run alone, the second puts it aside. (P5.)
		if m.Count("worker_lost") < 2 {
			j.add(Strange, m.ID, "%s was quarantined though no two workers died of it", recipient)
		}
	case "withdrawn":
		if e := j.entries[m.LoadID]; e != nil && e.Outcome == ledger.Accepted {
			j.add(Lost, m.ID, "it was withdrawn though its client was told 250")
		}
	default:
		j.add(Strange, m.ID, "%s ended as %s, which nobody asked for", recipient, state)
	}
}

func accepted(copies []*ledger.Arrival) int {
	n := 0
	for _, a := range copies {
		if a.Accepted() {
			n++
		}
	}
	return n
}

// expected is how many copies of a message that was delivered must have come: one; of notifications about the same mail,
// which can't be told apart where they arrive, one for each that was delivered.
func (j *hearing) expected(m *Message) int {
	if !m.isDSN() {
		return 1
	}
	n := 0
	for _, dsn := range j.wrote[m.LoadID] {
		if dsn.ended("delivered") {
			n++
		}
	}
	return n
}

// copied judges how many copies came: one where the recipient ended as delivered, and one more for each attempt whose outcome
// is recorded as unknown. (P3.) What the next hop may have taken counts: it had all of that and let no reply go out.
func (j *hearing) copied(m *Message, place int, state string, copies []*ledger.Arrival, what string) {
	possible := slices.DeleteFunc(slices.Clone(copies), func(a *ledger.Arrival) bool { return !a.Accepted() && a.Reply != 0 })
	unknown := m.unknown(int32(place))
	if m.isDSN() {
		for _, other := range j.wrote[m.LoadID] {
			if other != m {
				unknown += 1 + other.unknown(0)
			}
		}
	}
	switch n := len(possible); {
	case state == "delivered" && n > 1+unknown:
		j.add(Duplicate, m.ID, "%s %s arrived %d times at %s, but only %d attempts are recorded as unknown", what, m.Recipients[place], n,
			times(copies), unknown)
	case state != "delivered" && n > unknown:
		j.add(Strange, m.ID, "%s %s ended as %s and arrived all the same at %s; %d attempts are recorded as unknown", what,
			m.Recipients[place], state, times(copies), unknown)
	}
}

// arrived returns the copies of a message for a recipient.
func (j *hearing) arrived(m *Message, recipient string) (copies []*ledger.Arrival, what string) {
	key := delivery{m.LoadID, recipient}
	if m.isDSN() {
		return j.dsns[key], "the notification for"
	}
	return j.copies[key], "the mail for"
}

// bounced sees that the sender was told of this recipient, once. Nobody is told what became of a notification. (RFC 5321,
// section 4.5.5.)
func (j *hearing) bounced(m *Message, recipient, state string) {
	if m.isDSN() {
		return
	}
	told := 0
	for _, dsn := range j.wrote[m.LoadID] {
		if slices.Contains(dsn.Reported, recipient) {
			told++
		}
	}
	switch {
	case told == 0:
		j.add(NoDSN, m.ID, "%s ended as %s, but no notification was written that names it", recipient, state)
	case told > 1:
		j.add(Duplicate, m.ID, "%s ended as %s, and %d notifications tell so", recipient, state, told)
	case accepted(j.dsns[delivery{m.LoadID, m.Sender}]) == 0:
		j.add(NoDSN, m.ID, "%s ended as %s, but no notification arrived at %s", recipient, state, m.Sender)
	}
}

// reported judges what a notification says: each recipient in it must have ended so.
func (j *hearing) reported(dsn *Message) {
	of := j.mails[dsn.LoadID]
	switch {
	case of == nil || len(dsn.Reported) == 0:
		j.add(Strange, dsn.ID, "it is a notification about the recipients %v of mail %q: it must name a mail and its recipients", dsn.Reported, dsn.LoadID)
		return
	case len(of.Outcomes) == 0:
		return // that is found already
	}
	for _, recipient := range dsn.Reported {
		state := "nothing, as the message is not for it"
		if place := slices.Index(of.Recipients, recipient); place >= 0 && place < len(of.Outcomes[0].States) {
			state = of.Outcomes[0].States[place]
		}
		if state != "bounced" && state != "expired" {
			j.add(Strange, dsn.ID, "it tells that %s failed, which in message %s ended as %s", recipient, of.ID, state)
		}
	}
}
