package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// A generator and a sink on two machines, and a second generator, are one run.
func TestMerge(t *testing.T) {
	one := func(run Run) *Report {
		run.Number = 1
		return &Report{Title: "t", Cases: []Case{{Group: "g", Name: "n", System: "s", Runs: []Run{run}}}}
	}
	usage := func(name, doubt string) *machine.Usage {
		return &machine.Usage{Groups: map[string]machine.Group{name: {CPU: 1}}, Contaminated: []string{doubt}, Drops: 1}
	}
	m := Merge(one(Run{Gens: []*gen.Result{result(100, time.Second, 5, 0, 10)}, Usage: usage("generator", "a")}),
		one(Run{Sinks: []*sink.Stats{{Distinct: 300}}, Usage: usage("sink", "b")}),
		one(Run{Gens: []*gen.Result{result(200, time.Second, 7, 0, 20)}}))
	if len(m.Cases) != 1 || len(m.Cases[0].Runs) != 1 {
		t.Fatalf("%+v", m.Cases)
	}
	run := &m.Cases[0].Runs[0]
	missing, _, _ := Lost(run)
	if Rate(run) != 300 || missing != 0 || len(run.Usage.Groups) != 2 || len(run.Usage.Contaminated) != 2 || run.Usage.Drops != 2 {
		t.Errorf("rate %g, missing %d, %+v", Rate(run), missing, run.Usage)
	}
	l, err := m.Cases[0].Latency(func(g *gen.Result) latency.Summary { return g.Message })
	if err != nil || l.Count != 300 || math.Abs(l.P50-20) > 0.1 {
		t.Errorf("%+v %v", l, err)
	}
}

// What two generators used adds up, or half of it would have sent all the messages.
func TestMergeAddsUsage(t *testing.T) {
	one := func(cpu float64, foreign float64) *Report {
		return &Report{Cases: []Case{{Name: "n", Runs: []Run{{
			Number: 1, Gens: []*gen.Result{result(100, time.Second, 5, 0, 10)},
			Usage: &machine.Usage{Foreign: foreign, Groups: map[string]machine.Group{"generator": {CPU: cpu, PeakPSS: 5 << 20, Processes: 1}}},
		}}}}}
	}
	first := one(1, 0.1)
	run := &Merge(first, one(3, 0.2)).Cases[0].Runs[0]
	if CPU("generator")(run) != 4e6/200 || PSS("generator")(run) != 10 || run.Usage.Groups["generator"].Processes != 2 || run.Usage.Foreign != 0.2 {
		t.Errorf("%+v", run.Usage)
	}
	if g := first.Cases[0].Runs[0].Usage.Groups["generator"]; g.CPU != 1 {
		t.Errorf("the report that was merged has changed: %+v", g)
	}
}

// On one machine the whole way has one clock; on two, only what arrived is known.
func TestMergeOfTwoEnds(t *testing.T) {
	end := func(boot string, run Run) *Report {
		run.Number = 1
		return &Report{Environment: machine.Environment{Boot: boot, CPU: "of " + boot}, Cases: []Case{{Name: "n", Runs: []Run{run}}}}
	}
	g := Run{Gens: []*gen.Result{result(100, time.Second, 5, 0, 10)}}
	begin := g.Gens[0].First
	s := Run{Sinks: []*sink.Stats{{Distinct: 100, First: begin.Add(time.Second), Last: begin.Add(4 * time.Second)}}}
	m := Merge(end("one", g), end("one", s))
	if run := &m.Cases[0].Runs[0]; WholeRate(run) != 25 || !math.IsNaN(ArrivalRate(run)) || len(m.Elsewhere) != 0 {
		t.Errorf("on one machine: whole %g, arrived %g, %+v", WholeRate(run), ArrivalRate(run), m.Elsewhere)
	}
	m = Merge(end("one", g), end("two", s))
	if run := &m.Cases[0].Runs[0]; !math.IsNaN(WholeRate(run)) || ArrivalRate(run) != 33 || len(m.Elsewhere) != 1 {
		t.Errorf("on two machines: whole %g, arrived %g, %+v", WholeRate(run), ArrivalRate(run), m.Elsewhere)
	}
	var b strings.Builder
	if err := m.Table(&b); err != nil || !strings.Contains(b.String(), "of one") || !strings.Contains(b.String(), "of two") || !strings.Contains(b.String(), "arrived/s") {
		t.Errorf("%v\n%s", err, b.String())
	}
	none := Run{Gens: g.Gens, Sinks: []*sink.Stats{{}}}
	if WholeRate(&none) != 0 {
		t.Errorf("nothing arrived, at %g/s", WholeRate(&none))
	}
}

// Whoever gives a file twice must not get twice its rate. Generators whose names are not known, as in older results, are left alone.
func TestTwice(t *testing.T) {
	one := func(name string) *Report {
		return &Report{Cases: []Case{{Name: "n", Runs: []Run{{Number: 1, Gens: []*gen.Result{{Run: name}}}}}}}
	}
	if err := Merge(one("a"), one("b"), one("a")).Twice(); err == nil || !strings.Contains(err.Error(), "generator a of n") {
		t.Errorf("twice: %v", err)
	}
	if err := Merge(one("a"), one("b"), one(""), one("")).Twice(); err != nil {
		t.Error(err)
	}
}
