//go:build linux

package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

func TestCountGoroutines(t *testing.T) {
	got := countGoroutines(`SIGQUIT: quit
goroutine 1 gp=0x1 m=0 mp=0x2 [chan receive]:
main.main()
	/src/main.go:5 +0x1

goroutine 7 gp=0x3 m=nil [select]:
net/http.(*Server).Serve(0x1)
	/src/server.go:5 +0x1
created by example.org/a.(*B).Run.func1 in goroutine 1
	/src/a.go:5 +0x1

goroutine 8 gp=0x3 m=nil [select]:
created by example.org/a.(*B).Run.func1 in goroutine 7
	/src/a.go:5 +0x1
`)
	if len(got) != 1 || got["example.org/a.(*B).Run.func1"] != 2 {
		t.Errorf("got %v", got)
	}
}

func TestBoxed(t *testing.T) {
	content := mail.Sized(700).Make(nil, "load-1", "ann@a.example", "bob@box.example").Bytes()
	path := "/boxes/box.example/bob/new/01900000-0000-7000-8000-000000000001.0123456789abcdef"
	a := boxed(path, content, time.Now())
	if a.ID != "load-1" || a.Recipient != "bob@box.example" || a.MessageID != "01900000-0000-7000-8000-000000000001" || !a.Accepted() || a.Fault != "" {
		t.Errorf("got %+v", a)
	}
	if a := boxed(path, content[:len(content)-5], time.Now()); a.Fault == "" {
		t.Error("a mail that was cut is found in order")
	}
}

func TestIncompleteTrace(t *testing.T) {
	var spans []rohrtest.Span
	for i, name := range spanNames {
		spans = append(spans, rohrtest.Span{Name: name, SpanID: string(rune('a' + i)), ParentID: "a"})
	}
	if why := incomplete(spans); why != "" {
		t.Error(why)
	}
	if why := incomplete(spans[1:]); !strings.Contains(why, spanNames[0]) {
		t.Errorf("without its root: %q", why)
	}
	spans[3].ParentID = "z"
	if why := incomplete(spans); !strings.Contains(why, spanNames[3]) {
		t.Errorf("with an orphan: %q", why)
	}
}

// A report of a failure has all that is needed to find its cause.
func TestReport(t *testing.T) {
	r := &Report{
		Seed: 42, Faults: []schedule.Fault{{At: time.Second, Kind: schedule.Kill, Node: "spool-1", For: time.Second}},
		Findings: []judge.Finding{{Rule: judge.Lost, Message: "m1", Text: "gone"}},
		Messages: map[string]*judge.Message{"m1": {ID: "m1", Sender: "ann@a.example", Rows: []judge.Row{{Kind: "note", Events: []judge.Event{{Name: "accepted"}}}}}},
	}
	r.Findings = append(r.Findings, judge.Finding{Rule: judge.Lost, Message: "m2"})
	r.Logs = map[string][]string{"m1": {"spool-1: a line of its log"}}
	r.happened(r.Faults[0], "1.0s to 2.0s")
	r.count(&judge.Evidence{Entries: []ledger.Entry{{ID: "l", Outcome: ledger.Accepted}}})
	var b strings.Builder
	r.Write(&b)
	for _, want := range []string{
		"make chaos SEED=42", "kill spool-1 for 1.0s", "1.0s to 2.0s", "lost: message m1: gone", "accepted 1", "ann@a.example",
		"a line of its log", "message m2 is not in the database",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not tell %q:\n%s", want, b.String())
		}
	}
	if !r.Breaks(judge.Lost) || r.Breaks(judge.Duplicate) {
		t.Error("the rules that are broken are not told")
	}
	b.Reset()
	(&Report{Messages: map[string]*judge.Message{"m3": {ID: "m3", Rows: []judge.Row{{Events: []judge.Event{{Name: "quarantined"}}}}}}}).Write(&b)
	if !strings.Contains(b.String(), "put aside: message m3") {
		t.Errorf("a report does not tell what was put aside: %s", b.String())
	}
	b.Reset()
	(&Report{}).Write(&b)
	if !strings.Contains(b.String(), "every promise was kept") {
		t.Errorf("a report without findings: %s", b.String())
	}
}

// The plan names nodes that there are.
func TestPlan(t *testing.T) {
	known := map[string]bool{schedule.Postgres: true, schedule.Client: true}
	for _, n := range nodes {
		known[n] = true
	}
	for _, link := range plan().Links {
		if !known[link[0]] || !known[link[1]] || link[0] == link[1] {
			t.Errorf("there is no link %v", link)
		}
	}
}
