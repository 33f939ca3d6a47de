package ledger

import "strings"

// Pair names a message for one recipient, by its load id. Addresses of load tests don't differ by case alone.
func Pair(id, recipient string) string { return id + " " + strings.ToLower(recipient) }

// Doubtful are the recipients for whom a message may arrive though the server is not known to have taken it: after an unknown
// outcome, or a refusal, since the server may have had the content already.
func (e *Entry) Doubtful() []string {
	switch e.Outcome {
	case Accepted:
		return e.Rejected
	case Failed: // no content was sent
		return nil
	case Refused, Unknown:
	}
	return append(e.Recipients[:len(e.Recipients):len(e.Recipients)], e.Rejected...)
}

// Difference is what two ledgers don't agree on, as [Pair] names messages.
type Difference struct {
	Missing []string // accepted, and not arrived
	Hidden  []string // arrived, though the sender was not told that they were accepted; none in a count could tell them from the rest
	Strange []string // arrived, though nobody sent them
}

// Compare compares what was accepted with what arrived, message by message and recipient by recipient. An arrival counts where
// the sink took it, whether its reply got through or not; notifications don't.
func Compare(sent []Entry, arrivals []Arrival) Difference {
	arrived := map[string]bool{}
	for i := range arrivals {
		if a := &arrivals[i]; !a.Report && a.ID != "" && (a.Accepted() || a.Reply == 0) {
			arrived[Pair(a.ID, a.Recipient)] = true
		}
	}
	var d Difference
	take := func(pair string) bool {
		there := arrived[pair]
		delete(arrived, pair)
		return there
	}
	for i := range sent {
		e := &sent[i]
		for _, recipient := range e.Doubtful() {
			if pair := Pair(e.ID, recipient); take(pair) {
				d.Hidden = append(d.Hidden, pair)
			}
		}
		if e.Outcome != Accepted {
			continue
		}
		for _, recipient := range e.Recipients {
			if pair := Pair(e.ID, recipient); !take(pair) {
				d.Missing = append(d.Missing, pair)
			}
		}
	}
	for pair := range arrived {
		d.Strange = append(d.Strange, pair)
	}
	return d
}
