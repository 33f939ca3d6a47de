package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// at is a moment of the history, in seconds.
func at(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }

func events(names ...string) []Event {
	var all []Event
	for i, name := range names {
		all = append(all, Event{At: at(i), Name: name})
	}
	return all
}

func permit(token string, number int32, recipients ...int32) Row {
	return Row{Kind: "permit", Destination: "b.example", Number: number, Token: token, Recipients: recipients, Events: events("permitted")}
}

func result(token string, number int32, event string, recipients ...int32) Row {
	return Row{Kind: "result", Destination: "b.example", Number: number, Token: token, Recipients: recipients, Events: events(event)}
}

func note(names ...string) Row { return Row{Kind: "note", Events: events(names...)} }

func arrival(reply int) ledger.Arrival {
	return ledger.Arrival{ID: "load-1", MessageID: "m1", Recipient: "bob@b.example", Sender: "ann@a.example", Reply: reply, Time: at(9)}
}

// bounce makes the recipient of the history end as bounced, and tells its sender: by a message of the pipeline's own, and
// its arrival.
func bounce(e *Evidence, m *Message) (dsn *Message) {
	m.Rows = []Row{note("accepted")}
	m.Outcomes = []Outcome{{States: []string{"bounced"}, Events: events("bounced")}}
	e.Arrivals = []ledger.Arrival{{ID: "load-1", Recipient: "ann@a.example", Report: true, Reply: 250}}
	dsn = notification("m2", "bob@b.example")
	e.Messages = append(e.Messages, dsn)
	return dsn
}

// notification is one about the history's mail, which was delivered.
func notification(id string, about ...string) *Message {
	return &Message{
		ID: id, LoadID: "load-1", Recipients: []string{"ann@a.example"}, Reported: about, Rows: []Row{note("accepted"), permit("t9", 1, 0)},
		Outcomes: []Outcome{{States: []string{"delivered"}, Events: events("delivered")}},
	}
}

// second gives the history's mail another recipient, who got it too.
func second(e *Evidence, m *Message) {
	e.Entries[0].Recipients = []string{"bob@b.example", "eve@b.example"}
	m.Recipients = e.Entries[0].Recipients
	m.Rows[1] = permit("t1", 1, 0, 1)
	m.Outcomes[0].States = []string{"delivered", "delivered"}
	other := arrival(250)
	other.Recipient = "eve@b.example"
	e.Arrivals = append(e.Arrivals, other)
}

// history is one mail to one recipient that was accepted, delivered and arrived: nothing is wrong with it.
func history() *Evidence {
	return &Evidence{
		Entries: []ledger.Entry{{
			ID: "load-1", MessageID: "m1", Outcome: ledger.Accepted, Sender: "ann@a.example", Recipients: []string{"bob@b.example"},
		}},
		Arrivals: []ledger.Arrival{arrival(250)},
		Messages: []*Message{{
			ID: "m1", LoadID: "load-1", Sender: "ann@a.example", Recipients: []string{"bob@b.example"},
			Rows:     []Row{note("accepted", "parsed", "filtered"), permit("t1", 1, 0)},
			Outcomes: []Outcome{{States: []string{"delivered"}, Events: events("delivered")}},
		}},
	}
}

// Each case plants something into a history and names the rules that must be found broken; none where it is in order.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(e *Evidence, m *Message)
		want  []string
	}{
		"in order": {func(*Evidence, *Message) {}, nil},
		"a 250 without a row": {func(e *Evidence, _ *Message) {
			e.Messages, e.Arrivals = nil, nil
		}, []string{Lost}},
		"a 250 without an id":        {func(e *Evidence, _ *Message) { e.Entries[0].MessageID = "" }, []string{Strange, Strange}},
		"a 250 with another id":      {func(e *Evidence, _ *Message) { e.Entries[0].MessageID = "m7" }, []string{Strange, Lost}},
		"a message that nobody sent": {func(_ *Evidence, m *Message) { m.LoadID = "other" }, []string{Strange, Undelivered, Changed}},
		"content with a hole":        {func(_ *Evidence, m *Message) { m.Missing = 7 }, []string{Lost}},
		"content that was changed":   {func(_ *Evidence, m *Message) { m.Fault = "other octets" }, []string{Changed}},
		"two recipients":             {second, nil},
		"a recipient who was dropped at acceptance": {func(e *Evidence, _ *Message) {
			e.Entries[0].Recipients = append(e.Entries[0].Recipients, "eve@b.example")
		}, []string{Lost}},
		"a recipient to whom it was not sent": {func(e *Evidence, m *Message) {
			second(e, m)
			e.Entries[0].Recipients = e.Entries[0].Recipients[:1]
		}, []string{Strange}},
		"another sender": {func(_ *Evidence, m *Message) { m.Sender = "eve@a.example" }, []string{Strange}},
		"a mail that came to somebody else": {func(e *Evidence, _ *Message) {
			other := arrival(250)
			other.Recipient = "eve@b.example"
			e.Arrivals = append(e.Arrivals, other)
		}, []string{Strange}},
		"a mail that came to somebody else and names no message": {func(e *Evidence, _ *Message) {
			e.Arrivals[0].MessageID = ""
			other := e.Arrivals[0]
			other.Recipient = "eve@b.example"
			e.Arrivals = append(e.Arrivals, other)
		}, []string{Strange}},
		"a mail that came as another message": {func(e *Evidence, _ *Message) { e.Arrivals[0].MessageID = "m7" }, []string{Strange}},
		"a mail with another's content": {func(e *Evidence, m *Message) {
			second(e, m)
			e.Entries = append(e.Entries, ledger.Entry{ID: "load-2", Outcome: ledger.Refused, Reply: "451 4.3.0 Later"})
			e.Arrivals = append(e.Arrivals, e.Arrivals[0])
			e.Arrivals[2].ID = "load-2"
		}, []string{Changed}},
		"a notification that came to somebody else": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Arrivals = append(e.Arrivals, e.Arrivals[0])
			e.Arrivals[1].Recipient = "eve@a.example"
		}, []string{Strange}},
		"a notification for somebody else": {func(e *Evidence, m *Message) {
			bounce(e, m).Recipients[0], e.Arrivals[0].Recipient = "eve@a.example", "eve@a.example"
		}, []string{Strange, NoDSN, Strange}},
		"no outcome": {func(_ *Evidence, m *Message) { m.Outcomes = nil }, []string{Unfinished}},
		"two outcomes": {func(_ *Evidence, m *Message) {
			m.Outcomes = append(m.Outcomes, m.Outcomes[0])
		}, []string{Unfinished}},
		"ended, and waiting still": {func(_ *Evidence, m *Message) { m.Waits = []string{"!all"} }, []string{Unfinished}},
		"an outcome for too few": {func(e *Evidence, m *Message) {
			second(e, m)
			m.Outcomes[0].States = m.Outcomes[0].States[:1]
		}, []string{Unfinished}},
		"delivered, but never arrived": {func(e *Evidence, _ *Message) { e.Arrivals = nil }, []string{Undelivered}},
		"delivered, but refused at the end": {func(e *Evidence, _ *Message) {
			e.Arrivals = []ledger.Arrival{arrival(452)}
		}, []string{Undelivered}},
		"two copies": {func(e *Evidence, _ *Message) {
			e.Arrivals = append(e.Arrivals, arrival(250))
		}, []string{Duplicate}},
		"two copies, one unknown": {func(e *Evidence, m *Message) {
			e.Arrivals = append(e.Arrivals, arrival(250))
			m.Rows = append(m.Rows, result("t1", 1, "unknown", 0), permit("t2", 2, 0))
		}, nil},
		"two copies, another's attempt unknown": {func(e *Evidence, m *Message) {
			e.Arrivals = append(e.Arrivals, arrival(250))
			m.Rows = append(m.Rows, permit("t2", 1, 1), result("t2", 1, "unknown", 1))
		}, []string{Duplicate}},
		"two copies, one of them silent": {func(e *Evidence, _ *Message) {
			e.Arrivals = append(e.Arrivals, arrival(0))
		}, []string{Duplicate}},
		"two copies, unknown for another of the same attempt": {func(e *Evidence, m *Message) {
			second(e, m)
			unknown := result("t1", 1, "unknown", 0, 1)
			unknown.Ended, unknown.States = []int32{0}, []string{"delivered"}
			m.Rows = append(m.Rows, unknown, permit("t2", 2, 1))
			e.Arrivals = append(e.Arrivals, arrival(250))
		}, []string{Duplicate}},
		"a refused copy before": {func(e *Evidence, m *Message) {
			e.Arrivals = append(e.Arrivals, arrival(452))
			m.Rows = append(m.Rows, result("t1", 1, "deferred", 0), permit("t2", 2, 0))
		}, nil},
		"changed on its way": {func(e *Evidence, _ *Message) { e.Arrivals[0].Fault = "other octets" }, []string{Changed}},
		"mail that nobody sent": {func(e *Evidence, _ *Message) {
			e.Arrivals = append(e.Arrivals, ledger.Arrival{ID: "other", Recipient: "bob@b.example", Reply: 250})
		}, []string{Strange}},
		"refused for good": {func(e *Evidence, _ *Message) {
			e.Entries = append(e.Entries, ledger.Entry{ID: "load-2", Outcome: ledger.Refused, Reply: "554 5.3.0 Broken"})
		}, []string{Refused}},
		"refused for now": {func(e *Evidence, _ *Message) {
			e.Entries = append(e.Entries, ledger.Entry{ID: "load-2", Outcome: ledger.Refused, Reply: "451 4.3.0 Later"})
		}, nil},
		"bounced, and nobody was told": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Arrivals, e.Messages = nil, e.Messages[:1]
		}, []string{NoDSN}},
		"bounced, and the notification did not arrive": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Arrivals = nil
		}, []string{NoDSN, Undelivered}},
		"bounced, and the notification was refused": {func(e *Evidence, m *Message) {
			bounce(e, m).Outcomes[0] = Outcome{States: []string{"bounced"}, Events: events("bounced")}
			e.Arrivals[0].Reply = 550
		}, []string{NoDSN}},
		"bounced, and another recipient's notification arrived": {func(e *Evidence, m *Message) {
			bounce(e, m).Reported = []string{"eve@b.example"}
		}, []string{NoDSN, Strange}},
		"bounced, and told twice": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Messages = append(e.Messages, notification("m3", "bob@b.example"))
			e.Arrivals = append(e.Arrivals, e.Arrivals[0])
		}, []string{Duplicate}},
		"two notifications of which one arrived": {func(e *Evidence, m *Message) {
			second(e, m)
			bounce(e, m)
			m.Outcomes[0].States = []string{"bounced", "bounced"}
			e.Messages = append(e.Messages, notification("m3", "eve@b.example"))
		}, []string{Undelivered, Undelivered}},
		"bounced and told": {func(e *Evidence, m *Message) { bounce(e, m) }, nil},
		"bounced, and arrived": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Arrivals = append(e.Arrivals, arrival(250))
		}, []string{Strange}},
		"bounced, and arrived by an attempt that is unknown": {func(e *Evidence, m *Message) {
			bounce(e, m)
			e.Arrivals = append(e.Arrivals, arrival(250))
			m.Rows = append(m.Rows, permit("t1", 1, 0), result("t1", 1, "unknown", 0))
		}, nil},
		"told of a failure that was none": {func(e *Evidence, _ *Message) {
			e.Messages = append(e.Messages, notification("m2", "bob@b.example"))
			e.Arrivals = append(e.Arrivals, ledger.Arrival{ID: "load-1", Recipient: "ann@a.example", Report: true, Reply: 250})
		}, []string{Strange}},
		"refused in calm, and sent all the same": {func(e *Evidence, _ *Message) {
			e.Entries[0].Outcome, e.Entries[0].Reply, e.Entries[0].Start, e.Calm = ledger.Refused, "451 4.3.0 Later", at(2), at(1)
		}, []string{Duplicate}},
		"refused while something was broken, and sent": {func(e *Evidence, _ *Message) {
			e.Entries[0].Outcome, e.Entries[0].Reply, e.Entries[0].Start, e.Calm = ledger.Refused, "451 4.3.0 Later", at(1), at(2)
		}, nil},
		"withdrawn after a 250": {func(e *Evidence, m *Message) {
			e.Arrivals, m.Rows = nil, nil
			m.Outcomes = []Outcome{{States: []string{"withdrawn"}, Events: events("accepted", "withdrawn")}}
		}, []string{Lost}},
		"withdrawn after a 451": {func(e *Evidence, m *Message) {
			e.Entries[0].Outcome, e.Arrivals, m.Rows = ledger.Refused, nil, nil
			m.Outcomes = []Outcome{{States: []string{"withdrawn"}, Events: events("accepted", "withdrawn")}}
		}, nil},
		"withdrawn, and sent all the same": {func(e *Evidence, m *Message) {
			e.Entries[0].Outcome = ledger.Refused
			m.Outcomes = []Outcome{{States: []string{"withdrawn"}, Events: events("withdrawn")}}
		}, []string{Strange}},
		"withdrawn, and given to a next hop that said nothing": {func(e *Evidence, m *Message) {
			e.Entries[0].Outcome, e.Arrivals[0].Reply = ledger.Refused, 0
			m.Outcomes = []Outcome{{States: []string{"withdrawn"}, Events: events("withdrawn")}}
		}, []string{Strange}},
		"quarantined without a cause": {func(e *Evidence, m *Message) {
			e.Arrivals = nil
			m.Outcomes = []Outcome{{States: []string{"quarantined"}, Events: events("quarantined")}}
		}, []string{Strange}},
		"quarantined as two workers died": {func(e *Evidence, m *Message) {
			e.Arrivals, m.Rows = nil, []Row{note("accepted", "worker_lost"), note("worker_lost")}
			m.Outcomes = []Outcome{{States: []string{"quarantined"}, Events: events("quarantined")}}
		}, nil},
		"a permit while one is open": {func(_ *Evidence, m *Message) {
			m.Rows = append(m.Rows, permit("t2", 2, 0))
		}, []string{Journal}},
		"a permit for another recipient": {func(_ *Evidence, m *Message) {
			m.Rows = append(m.Rows, permit("t2", 1, 1))
		}, nil},
		"delivered without a permit": {func(_ *Evidence, m *Message) { m.Rows = m.Rows[:1] }, []string{Journal}},
		"delivered with another's permit": {func(e *Evidence, m *Message) {
			second(e, m)
			m.Rows[1].Recipients = []int32{1}
		}, []string{Journal}},
		"a recipient that ended twice": {func(e *Evidence, m *Message) {
			second(e, m)
			ended := result("t1", 1, "delivered", 0, 1)
			ended.Ended, ended.States = []int32{0}, []string{"delivered"}
			m.Rows = append(m.Rows, ended, ended)
		}, []string{Unfinished}},
		"a recipient that ended otherwise": {func(e *Evidence, m *Message) {
			second(e, m)
			ended := result("t1", 1, "bounced", 0, 1)
			ended.Ended, ended.States = []int32{0}, []string{"bounced"}
			m.Rows = append(m.Rows, ended)
		}, []string{Journal}},
		"an end of which the journal is silent": {func(_ *Evidence, m *Message) {
			m.Outcomes[0].Events = events("bounced")
		}, []string{Journal}},
		"a journal that goes back": {func(_ *Evidence, m *Message) { m.Rows[0].Events[0].At = at(3600) }, []string{Journal}},
		"a result for some of the recipients closes no permit for all": {func(_ *Evidence, m *Message) {
			m.Rows = []Row{note("accepted"), permit("t1", 1, 0, 1), result("t2", 2, "deferred", 0), permit("t3", 3, 1)}
		}, []string{Journal}},
		"no acceptance": {func(_ *Evidence, m *Message) { m.Rows = m.Rows[1:] }, []string{Journal}},
		"no acceptance, as its owner died": {func(_ *Evidence, m *Message) {
			m.Rows[0] = note("adopted", "parsed", "filtered")
		}, nil},
		"accepted twice":    {func(_ *Evidence, m *Message) { m.Rows[0] = note("accepted", "accepted") }, []string{Journal}},
		"accepted too late": {func(_ *Evidence, m *Message) { m.Rows[0] = note("parsed", "accepted") }, []string{Journal}},
		"an end that is none": {func(_ *Evidence, m *Message) {
			m.Outcomes[0].Events = events("delivered", "deferred")
		}, []string{Journal}},
		"an empty journal": {func(_ *Evidence, m *Message) { m.Rows, m.Outcomes[0].Events = nil, nil }, []string{Journal}},
	} {
		t.Run(name, func(t *testing.T) {
			e := history()
			c.plant(e, e.Messages[0])
			var got []string
			for _, f := range Judge(e) {
				got = append(got, f.Rule)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v: %v", got, c.want, Judge(e))
			}
		})
	}
}

// A notification is mail itself: it arrives once.
func TestNotificationTwice(t *testing.T) {
	e := history()
	bounce(e, e.Messages[0])
	e.Arrivals = append(e.Arrivals, e.Arrivals[0])
	if found := Judge(e); len(found) != 1 || found[0].Rule != Duplicate || found[0].Message != "m2" {
		t.Errorf("found %v, want the second notification", found)
	}
}

// What a client was not told is found all the same.
func TestReplyLost(t *testing.T) {
	e := history()
	e.Entries[0].MessageID, e.Entries[0].Outcome = "", ledger.Unknown
	if found := Judge(e); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func TestReportOfAMessage(t *testing.T) {
	m := history().Messages[0]
	m.Waits = []string{"!all (all, owner nobody, until 12:00)"}
	text := m.String()
	for _, want := range []string{"m1", "ann@a.example", "accepted", "permitted", "delivered", "waits for !all"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not tell %q", text, want)
		}
	}
}
