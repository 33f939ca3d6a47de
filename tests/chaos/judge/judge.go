// Package judge decides whether a pipeline kept its promises through a chaos run: by what the clients were told, what came
// out at the other end, and the rows of the database. It knows none of the code that it judges.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// Evidence is what there is after a run whose faults have been healed and whose queue has drained.
type Evidence struct {
	Entries  []ledger.Entry   // what clients were told
	Arrivals []ledger.Arrival // what came out, once for each recipient
	Messages []*Message       // what the database says
}

// Message is a message as the database has it.
type Message struct {
	ID         string
	Owner      int64
	Sender     string
	Recipients []string
	Accepted   time.Time
	Rows       []Row // by id: in the order in which they were made
	Outcomes   []Outcome
	Waits      []string // what it still waits for
	// Load is the load id of the mail; of a notification that of the mail which it returns.
	Load string
	// Missing is how many octets of its content are not there.
	Missing int64
}

// Row is a row of the table attempt.
type Row struct {
	Kind        string // permit, result or note
	Destination string
	Number      int32
	Token       string
	Recipients  []int32
	Events      []Event
}

// Outcome is a row of the table outcome.
type Outcome struct {
	States []string // of each recipient
	Events []Event
}

// Event is an entry of the journal.
type Event struct {
	At     time.Time
	Name   string
	Stage  string
	Detail string
}

// The rules that can be broken.
const (
	Lost        = "lost"        // a message that got a 250 is not there, or not whole
	Unfinished  = "unfinished"  // a message has not ended, or more than once
	Undelivered = "undelivered" // a recipient ended as delivered, but nothing arrived
	Silent      = "silent"      // a recipient ended otherwise, and its sender was not told
	Duplicate   = "duplicate"   // more copies than the journal explains
	Changed     = "changed"     // what arrived is not what was sent
	Refused     = "refused"     // a permanent refusal of mail that is in order
	Strange     = "strange"     // something arrived, or ended, that nobody sent or asked for
	Journal     = "journal"     // the journal is not whole
	Machine     = "machine"     // something else than mail: a process, a connection, a trace
)

// Finding is a broken rule.
type Finding struct {
	Rule    string
	Message string // the pipeline's id, where there is one
	Text    string
}

// String is the finding in one line.
func (f Finding) String() string {
	if f.Message == "" {
		return f.Rule + ": " + f.Text
	}
	return f.Rule + ": message " + f.Message + ": " + f.Text
}

// Judge returns what is wrong, ordered by message.
func Judge(e *Evidence) []Finding {
	j := newHearing(e)
	for i := range e.Entries {
		j.entry(&e.Entries[i])
	}
	for _, m := range e.Messages {
		j.message(m)
	}
	for i := range e.Arrivals {
		j.arrival(&e.Arrivals[i])
	}
	slices.SortStableFunc(j.found, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return j.found
}

// hearing is a case while it is judged.
type hearing struct {
	messages map[string]*Message
	entries  map[string]*ledger.Entry       // by load id
	copies   map[delivery][]*ledger.Arrival // of mails
	reports  map[delivery][]*ledger.Arrival // of notifications, by the mail that they return
	found    []Finding
}

// delivery is a mail, by its load id, for a recipient.
type delivery struct{ load, recipient string }

func newHearing(e *Evidence) *hearing {
	j := &hearing{
		messages: map[string]*Message{}, entries: map[string]*ledger.Entry{},
		copies: map[delivery][]*ledger.Arrival{}, reports: map[delivery][]*ledger.Arrival{},
	}
	for _, m := range e.Messages {
		j.messages[m.ID] = m
	}
	for i := range e.Entries {
		j.entries[e.Entries[i].ID] = &e.Entries[i]
	}
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		key := delivery{a.ID, a.Recipient}
		if a.Report {
			j.reports[key] = append(j.reports[key], a)
			continue
		}
		j.copies[key] = append(j.copies[key], a)
	}
	return j
}

func (j *hearing) add(rule, message, format string, args ...any) {
	j.found = append(j.found, Finding{Rule: rule, Message: message, Text: fmt.Sprintf(format, args...)})
}

// entry judges what a client was told. (P1.)
func (j *hearing) entry(e *ledger.Entry) {
	if e.Outcome == ledger.Refused && strings.HasPrefix(e.Reply, "5") {
		j.add(Refused, e.MessageID, "mail %s was refused for good: %s", e.ID, e.Reply)
	}
	if e.Outcome != ledger.Accepted {
		return
	}
	m := j.messages[e.MessageID]
	switch {
	case e.MessageID == "":
		j.add(Strange, "", "mail %s was accepted without an id: %s", e.ID, e.Reply)
	case m == nil:
		j.add(Lost, e.MessageID, "mail %s got a 250 at %s, but there is no such message", e.ID, clock(e.End))
	case m.Missing > 0:
		j.add(Lost, m.ID, "mail %s got a 250 at %s, but %d octets of its content are not there", e.ID, clock(e.End), m.Missing)
	}
}

// message judges how a message ended. (P2.)
func (j *hearing) message(m *Message) {
	e := j.entries[m.Load]
	if e == nil || !m.isReport() && e.Outcome == ledger.Accepted && e.MessageID != m.ID {
		j.add(Strange, m.ID, "it is mail %q, which nobody sent as this message", m.Load)
	}
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

// recipient judges how a recipient ended.
func (j *hearing) recipient(m *Message, place int, state string) {
	recipient := m.Recipients[place]
	copies, what := j.arrived(m, recipient)
	taken := slices.ContainsFunc(copies, func(a *ledger.Arrival) bool { return a.Accepted() })
	// What was taken for good, and what may have been: the sink had all of it and let no reply go out.
	possible := 0
	for _, a := range copies {
		if a.Accepted() || a.Reply == 0 {
			possible++
		}
	}
	if unknown := m.unknown(int32(place)); possible > 1+unknown {
		j.add(Duplicate, m.ID, "%s %s arrived %d times at %s, but only %d attempts are recorded as unknown", what, recipient, possible,
			times(copies), unknown)
	}
	switch state {
	case "delivered":
		if !taken {
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
		if e := j.entries[m.Load]; e != nil && e.Outcome == ledger.Accepted {
			j.add(Lost, m.ID, "it was withdrawn though its client was told 250")
		}
		if taken {
			j.add(Strange, m.ID, "it was withdrawn and arrived all the same at %s", times(copies))
		}
	default:
		j.add(Strange, m.ID, "%s ended as %s, which nobody asked for", recipient, state)
	}
}

// arrived returns the copies of a message for a recipient.
func (j *hearing) arrived(m *Message, recipient string) (copies []*ledger.Arrival, what string) {
	key := delivery{m.Load, recipient}
	if m.isReport() {
		return j.reports[key], "the notification for"
	}
	return j.copies[key], "the mail for"
}

// isReport tells whether a message is a notification: only those have the null reverse-path here.
func (m *Message) isReport() bool { return m.Sender == "" }

// bounced sees that the sender was told. Nobody is told what became of a notification. (RFC 5321, section 4.5.5.)
func (j *hearing) bounced(m *Message, recipient, state string) {
	if !m.isReport() && len(j.reports[delivery{m.Load, m.Sender}]) == 0 {
		j.add(Silent, m.ID, "%s ended as %s, but no notification arrived at %s", recipient, state, m.Sender)
	}
}

// arrival judges something that came out.
func (j *hearing) arrival(a *ledger.Arrival) {
	if a.Fault != "" {
		j.add(Changed, a.MessageID, "%s got mail %s at %s: %s", a.Recipient, a.ID, clock(a.Time), a.Fault)
	}
	if j.entries[a.ID] == nil {
		j.add(Strange, a.MessageID, "%s got mail %q at %s, which nobody sent", a.Recipient, a.ID, clock(a.Time))
	}
}

func times(arrivals []*ledger.Arrival) string {
	list := make([]string, 0, len(arrivals))
	for _, a := range arrivals {
		list = append(list, fmt.Sprintf("%s (%d)", clock(a.Time), a.Reply))
	}
	return strings.Join(list, ", ")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
