//go:build linux

package chaos

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
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
		Seed: 42, Duration: time.Minute, Repeat: "make chaos SEED=42 DURATION=1m0s", Faults: []schedule.Fault{{At: time.Second, Kind: schedule.Kill, Node: "spool-1", For: time.Second}},
		Findings: []judge.Finding{{Rule: judge.Lost, Message: "m1", Text: "gone"}},
		Messages: map[string]*judge.Message{"m1": {ID: "m1", Sender: "ann@a.example", Rows: []judge.Row{{Kind: "note", Events: []judge.Event{{Name: "accepted"}}}}}},
	}
	r.Findings = append(r.Findings, judge.Finding{Rule: judge.Lost, Message: "m2"})
	r.Logs = map[string][]string{"m1": {"spool-1: a line of its log"}}
	r.happened(attempt{Fault: r.Faults[0], From: time.Second, InForce: 1100 * time.Millisecond, Until: 2 * time.Second})
	r.happened(attempt{Fault: schedule.Fault{Kind: schedule.Terminate, Node: schedule.Postgres}, Err: errors.New("it is starting up")})
	r.judgeUpkeep([]cluster.Ending{{Node: "filter-2", How: "signal: killed"}})
	r.count(&judge.Evidence{Entries: []ledger.Entry{{ID: "l", Outcome: ledger.Accepted}}})
	var b strings.Builder
	r.Write(&b)
	for _, want := range []string{
		"to repeat: make chaos SEED=42 DURATION=1m0s", "1 of 1 faults made", "could not be made:    0.0s  terminate postgres",
		"it is starting up", "filter-2 ended by itself", "kill spool-1 for 1.0s", "1.0s to 2.0s", "lost: message m1: gone", "accepted 1", "ann@a.example",
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
	(&Report{Faults: r.Faults}).Write(&b)
	if text := b.String(); !strings.Contains(text, "NOTHING WAS JUDGED") || strings.Contains(text, "kept") || !strings.Contains(text, "kill spool-1") {
		t.Errorf("a report of a run that broke off: %s", text)
	}
	b.Reset()
	(&Report{Judged: true}).Write(&b)
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

// violent is a report of a run with as much chaos as there must be.
func violent() *Report {
	r := &Report{Duration: time.Minute, Start: time.Unix(1_700_000_000, 0), UnderFaults: 3 * 60, Counts: map[string]int{"journal adopted": 1}}
	for i := range 10 {
		f := schedule.Fault{At: time.Duration(i) * time.Second, Kind: schedule.Kill, Node: "spool-1"}
		if i >= 5 {
			f.Kind, f.Node = schedule.Break, "gateway-1"
		}
		r.Faults = append(r.Faults, f)
		r.happened(attempt{Fault: f})
	}
	return r
}

// A run without chaos does not pass.
func TestTame(t *testing.T) {
	refuse := errors.New("it can't be done")
	for name, c := range map[string]struct {
		change func(*Report)
		want   string
	}{
		"as it must be":           {func(*Report) {}, ""},
		"two faults not made":     {func(r *Report) { r.actual[0].Err, r.actual[9].Err = refuse, refuse }, ""},
		"three faults not made":   {func(r *Report) { r.actual = r.actual[3:] }, "only 7 of 10"},
		"a kind that is not made": {func(r *Report) { r.actual = append(r.actual[:5:5], r.actual[:5]...) }, "of the kind break"},
		"no mail":                 {func(r *Report) { r.UnderFaults = 179 }, "only 179 mails"},
		"no adoption":             {func(r *Report) { r.Counts = nil }, "took over"},
		"no adoption, and no cause for one": {func(r *Report) {
			r.Counts = nil
			for i := range r.actual {
				r.actual[i].Node = "parser-1"
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := violent()
			c.change(r)
			r.judgeChaos()
			switch {
			case c.want == "" && !r.OK():
				t.Errorf("found %v", r.Findings)
			case c.want != "" && (len(r.Findings) != 1 || r.Findings[0].Rule != judge.Tame || !strings.Contains(r.Findings[0].Text, c.want)):
				t.Errorf("found %v, want %q", r.Findings, c.want)
			}
		})
	}
}

// A process that ends by itself is a fault, PostgreSQL where its disk was full aside.
func TestUpkeep(t *testing.T) {
	r := violent()
	full := schedule.Fault{At: 10 * time.Second, For: time.Second, Kind: schedule.Fill, Node: cluster.DiskWAL}
	r.happened(attempt{Fault: full, From: 10 * time.Second, Until: 11 * time.Second})
	for name, c := range map[string]struct {
		node  string
		after time.Duration
		found bool
	}{
		"a service":                     {"spool-1", 10500 * time.Millisecond, true},
		"postgres with a full disk":     {schedule.Postgres, 10500 * time.Millisecond, false},
		"postgres soon after that":      {schedule.Postgres, 20 * time.Second, false},
		"postgres without a full disk":  {schedule.Postgres, 9 * time.Second, true},
		"postgres a long time after it": {schedule.Postgres, time.Minute, true},
	} {
		r.Findings = nil
		r.judgeUpkeep([]cluster.Ending{{At: r.Start.Add(c.after), Node: c.node, How: "exit status 1"}})
		if r.OK() == c.found {
			t.Errorf("%s: found %v", name, r.Findings)
		}
	}
}

func TestLeaks(t *testing.T) {
	const own, rpc = "github.com/rohrpost/rohrpost/spool.(*Spool).Run", "google.golang.org/grpc.(*Server).Serve"
	used := map[string]int{own: 9, rpc: 25}
	if leaks := leakedGoroutines(used, map[string]int{own: 1, rpc: 1}); len(leaks) != 0 {
		t.Errorf("found %v", leaks)
	}
	if leaks := leakedGoroutines(used, map[string]int{rpc: 1}); len(leaks) != 1 || !strings.Contains(leaks[0], "9 goroutines created by "+own) {
		t.Errorf("found %v, want those of the spool", leaks)
	}
	if leaks := leakedGoroutines(used, map[string]int{own: 1}); len(leaks) != 1 || !strings.Contains(leaks[0], rpc) {
		t.Errorf("found %v, want those of gRPC", leaks)
	}
	before := map[string]map[string]int{"spool-1": {"socket": 10}, "filter-1": {"socket": 10}}
	now := map[string]map[string]int{"spool-1": {"socket": 10 + moreFiles}, "filter-1": {"socket": 11 + moreFiles, "file": 2}}
	if leaks := leaked(before, now); len(leaks) != 1 || !strings.Contains(leaks[0], "filter-1 has 35 files open of the kind socket") {
		t.Errorf("found %v, want the sockets of filter-1", leaks)
	}
}

// Two faults of one node, or of one link, or of PostgreSQL and its disk, come one after the other; others don't wait.
func TestTurns(t *testing.T) {
	var turns turns
	giveBack := turns.take(schedule.Fault{Node: "spool-1", Peer: schedule.Postgres})
	turns.take(schedule.Fault{Node: "spool-2", Peer: "gateway-1"})()
	taken := make(chan string, 2)
	for _, name := range []string{"spool-1", cluster.DiskWAL} {
		go func() {
			defer turns.take(schedule.Fault{Node: name})()
			taken <- name
		}()
	}
	select {
	case name := <-taken:
		t.Errorf("%s has two faults at a time", name)
	case <-time.After(50 * time.Millisecond):
	}
	giveBack()
	got := []string{<-taken, <-taken}
	slices.Sort(got)
	if !slices.Equal(got, []string{cluster.DiskWAL, "spool-1"}) {
		t.Errorf("got %v", got)
	}
}

// What is told late, or twice, is counted once.
func TestTally(t *testing.T) {
	var counted tally
	total := int64(0)
	for _, n := range []int64{3, 7, 5, 7, 9, 8} {
		total += counted.raise(n)
	}
	if total != 9 {
		t.Errorf("counted %d, want 9", total)
	}
}
