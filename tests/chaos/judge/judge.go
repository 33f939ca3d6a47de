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
	// Calm is from when on nothing was broken any more; zero where that never was.
	Calm time.Time
}

// Message is a message as the database has it.
type Message struct {
	ID         string
	Owner      int64
	Sender     string
	Recipients []string
	Accepted   time.Time
	Rows       []Row // in the order in which they were made
	Outcomes   []Outcome
	Waits      []string // what it still waits for
	// LoadID is the load id of the mail; of a notification that of the mail which it returns.
	LoadID string
	// Missing is how many octets of its content are not there, wherever the holes are.
	Missing int64
	// Fault is what is wrong with the content that is there; empty for notifications, which have no hash to tell.
	Fault string
	// Reported are the recipients that a notification says to have failed.
	Reported []string
}

// Row is a row of the table attempt.
type Row struct {
	Kind        string // permit, result or note
	Destination string
	Number      int32
	Token       string
	Recipients  []int32
	Ended       []int32  // recipients that ended with it
	States      []string // how each of those ended
	Events      []Event
}

// Outcome is a row of the table outcome. The table's key allows one for a message; the judge does not rest on it.
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
	NoDSN       = "no-dsn"      // a recipient ended otherwise, and its sender was not told
	Duplicate   = "duplicate"   // more copies than the journal explains
	Changed     = "changed"     // what arrived, or is kept, is not what was sent
	Refused     = "refused"     // a permanent refusal of mail that is in order
	Strange     = "strange"     // something arrived, or ended, that nobody sent or asked for, or at somebody else
	Journal     = "journal"     // the journal is not whole
	Machine     = "machine"     // something else than mail: a process, a connection, a trace
	Tame        = "tame"        // the run itself proves too little: too few faults were made, or too little mail was under way
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
	calm     time.Time
	messages map[string]*Message
	entries  map[string]*ledger.Entry       // by load id
	copies   map[delivery][]*ledger.Arrival // of mails
	dsns     map[delivery][]*ledger.Arrival // of notifications, by the mail that they return
	mails    map[string]*Message            // that are no notifications, by load id
	wrote    map[string][]*Message          // the notifications that the pipeline wrote, by the load id of the mail that they return
	found    []Finding
}

// delivery is a mail, by its load id, for a recipient.
type delivery struct{ loadID, recipient string }

func newHearing(e *Evidence) *hearing {
	j := &hearing{
		calm: e.Calm, messages: map[string]*Message{}, mails: map[string]*Message{}, entries: map[string]*ledger.Entry{},
		copies: map[delivery][]*ledger.Arrival{}, dsns: map[delivery][]*ledger.Arrival{}, wrote: map[string][]*Message{},
	}
	for _, m := range e.Messages {
		j.messages[m.ID] = m
		if m.isDSN() {
			j.wrote[m.LoadID] = append(j.wrote[m.LoadID], m)
		} else {
			j.mails[m.LoadID] = m
		}
	}
	for i := range e.Entries {
		j.entries[e.Entries[i].ID] = &e.Entries[i]
	}
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		key := delivery{a.ID, a.Recipient}
		if a.Report {
			j.dsns[key] = append(j.dsns[key], a)
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
	case m.Fault != "":
		j.add(Changed, m.ID, "mail %s got a 250 at %s, but what is kept of it is not what was sent: %s", e.ID, clock(e.End), m.Fault)
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
