package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// endings are the events that end recipients.
var endings = []string{"delivered", "bounced", "expired", "discarded", "quarantined", "withdrawn"}

// journal judges whether the journal is whole: the acceptance first, an end last, and no permit while another is open. (P8.)
func (j *hearing) journal(m *Message) {
	events := m.events()
	if len(events) == 0 {
		j.add(Journal, m.ID, "its journal is empty")
		return
	}
	switch n := m.Count("accepted"); {
	case n > 1:
		j.add(Journal, m.ID, "it was accepted %d times", n)
	case n == 1 && events[0].Name != "accepted":
		j.add(Journal, m.ID, "its journal begins with %s", events[0].Name)
	case n == 0 && m.Count("adopted") == 0:
		// An owner that dies before it has written anything takes the entry with it; the message's own row tells it then.
		j.add(Journal, m.ID, "its journal has no acceptance, and it was never adopted")
	}
	if last := events[len(events)-1].Name; !slices.Contains(endings, last) {
		j.add(Journal, m.ID, "its journal ends with %s", last)
	}
	for i := 1; i < len(events); i++ {
		if back := events[i-1].At.Sub(events[i].At); back > skew {
			j.add(Journal, m.ID, "its journal goes back in time by %s, from %s to %s", back, events[i-1].Name, events[i].Name)
		}
	}
	j.ends(m)
	j.permits(m)
}

// skew is by how much the clocks of two spools may differ. They go by PostgreSQL's, which a spool that is stopped while it
// asks for the time takes to be late by as long.
const skew = 30 * time.Second

// ends judges whether each recipient ended once, and the journal says how.
func (j *hearing) ends(m *Message) {
	states := m.Outcomes[0].States
	ended := map[int32]bool{}
	for _, row := range m.Rows {
		for i, r := range row.Ended {
			switch {
			case ended[r]:
				j.add(Unfinished, m.ID, "its recipient %d ended more than once, at last as %s", r, row.States[i])
			case int(r) >= len(states) || states[r] != row.States[i]:
				j.add(Journal, m.ID, "its recipient %d ended as %s, but its outcome is %v", r, row.States[i], states)
			}
			ended[r] = true
		}
	}
	for _, state := range states {
		if m.Count(state) == 0 {
			j.add(Journal, m.ID, "a recipient ended as %s, of which its journal knows nothing", state)
		}
	}
}

// permits follows the permits of a message from row to row. A permit is closed by a result of the same token, or by one of a
// later attempt at the same destination for all of its recipients. Nothing is delivered without one.
func (j *hearing) permits(m *Message) {
	var open []Row
	permitted := map[int32]bool{}
	for _, row := range m.Rows {
		switch row.Kind {
		case "permit":
			for _, o := range open {
				if o.Destination == row.Destination && overlap(o.Recipients, row.Recipients) {
					j.add(Journal, m.ID, "attempt %d for %s was permitted while attempt %d was open", row.Number, row.Destination, o.Number)
				}
			}
			open = append(open, row)
			for _, r := range row.Recipients {
				permitted[r] = true
			}
		case "result":
			open = slices.DeleteFunc(open, func(o Row) bool {
				return o.Token == row.Token || o.Destination == row.Destination && row.Number >= o.Number && covers(row.Recipients, o.Recipients)
			})
		}
	}
	for i, state := range m.Outcomes[0].States {
		if state == "delivered" && !permitted[int32(i)] {
			j.add(Journal, m.ID, "its recipient %d ended as delivered, but no attempt at it was permitted", i)
		}
	}
}

func overlap(a, b []int32) bool {
	return slices.ContainsFunc(a, func(i int32) bool { return slices.Contains(b, i) })
}

func covers(a, b []int32) bool {
	return !slices.ContainsFunc(b, func(i int32) bool { return !slices.Contains(a, i) })
}

// events is the whole journal, in the order of rows.
func (m *Message) events() []Event {
	var all []Event
	for _, r := range m.Rows {
		all = append(all, r.Events...)
	}
	for _, o := range m.Outcomes {
		all = append(all, o.Events...)
	}
	return all
}

// Count tells how often an event stands in the journal.
func (m *Message) Count(event string) int {
	n := 0
	for _, e := range m.events() {
		if e.Name == event {
			n++
		}
	}
	return n
}

// unknown counts the attempts for a recipient whose outcome is recorded as unknown. Where others of the same attempt were
// unknown, but it ended, it was not.
func (m *Message) unknown(recipient int32) int {
	n := 0
	for _, row := range m.Rows {
		if slices.Contains(row.Recipients, recipient) && !slices.Contains(row.Ended, recipient) && slices.ContainsFunc(row.Events, func(e Event) bool { return e.Name == "unknown" }) {
			n++
		}
	}
	return n
}

// String is the message with its journal, as a report shows it.
func (m *Message) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s from <%s> to %v, accepted by incarnation %d at %s\n", m.ID, m.Sender, m.Recipients, m.Owner, clock(m.Accepted))
	line := func(where string, e Event) {
		fmt.Fprintf(&b, "  %s  %-20s %-8s %s  [%s]\n", clock(e.At), e.Name, e.Stage, e.Detail, where)
	}
	for _, r := range m.Rows {
		where := fmt.Sprintf("%s %s #%d %v", r.Kind, r.Destination, r.Number, r.Recipients)
		if len(r.Events) == 0 {
			fmt.Fprintf(&b, "  (no event)  [%s]\n", where)
		}
		for _, e := range r.Events {
			line(where, e)
		}
	}
	for _, o := range m.Outcomes {
		for _, e := range o.Events {
			line("outcome "+strings.Join(o.States, ","), e)
		}
	}
	for _, w := range m.Waits {
		fmt.Fprintf(&b, "  waits for %s\n", w)
	}
	return b.String()
}
