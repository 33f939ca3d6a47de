package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{5}, Spread{5, 5, 5}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9}},
	} {
		if got := Of(c.values...); got != c.want {
			t.Errorf("Of(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// result is a generator that had n messages accepted in took, each of which lasted ms.
func result(n int64, took time.Duration, concurrency, perSession int, ms int) *gen.Result {
	var r latency.Recorder
	for i := range n {
		r.Record(int(i), time.Duration(ms)*time.Millisecond)
	}
	begin := time.Unix(1000, 0).UTC()
	res := &gen.Result{
		Concurrency: concurrency, PerSession: perSession, Begin: begin, First: begin, Warm: begin, Last: begin.Add(took), End: begin.Add(took),
		Counted: n, Messages: n, Accepted: n, Recipients: n, Sessions: n, Message: r.Summary(), Errors: map[string]int64{},
	}
	if perSession > 0 {
		res.Sessions = n / int64(perSession)
		res.Session = r.Summary()
	}
	return res
}

func TestFigures(t *testing.T) {
	r := &Run{
		Gens: []*gen.Result{result(1000, 2*time.Second, 50, 0, 100)}, Whole: 4,
		Usage: &machine.Usage{Groups: map[string]machine.Group{"server": {CPU: 0.5, PeakPSS: 3 << 20}}}, Values: map[string]float64{"x": 7},
	}
	for name, c := range map[string]struct{ got, want float64 }{
		"rate":   {Rate(r), 500},
		"whole":  {WholeRate(r), 250},
		"little": {Little(r), 100}, // 50 ÷ 500/s
		"mean":   {Mean(r), 100},
		"CPU":    {CPU("server")(r), 500},
		"no CPU": {CPU("nobody")(r), 0},
		"PSS":    {PSS("server")(r), 3},
		"value":  {Value("x")(r), 7},
	} {
		if math.Abs(c.got-c.want) > c.want/500 {
			t.Errorf("%s is %g, want %g", name, c.got, c.want)
		}
	}
	r.Gens = []*gen.Result{result(1000, 2*time.Second, 50, 10, 1000)}
	if SessionRate(r) != 50 || Little(r) != 1000 || math.Abs(Mean(r)-1000) > 2 { // 50 ÷ 50/s: of sessions, where they are short
		t.Errorf("sessions %g/s, little %g, mean %g", SessionRate(r), Little(r), Mean(r))
	}
}

func TestLost(t *testing.T) {
	r := &Run{Gens: []*gen.Result{result(10, time.Second, 1, 0, 1)}, Sinks: []*sink.Stats{{Distinct: 7, Duplicates: 2, Faults: map[string]int64{"x": 1}}}}
	if missing, twice, broken := Lost(r); missing != 3 || twice != 2 || broken != 1 {
		t.Errorf("%d %d %d", missing, twice, broken)
	}
	r.Failed = "the time was over"
	if missing, twice, broken := Lost(r); missing+twice+broken != 0 {
		t.Errorf("of a run that failed: %d %d %d", missing, twice, broken)
	}
	r.Sinks, r.Failed = nil, ""
	if missing, _, _ := Lost(r); missing != 0 {
		t.Errorf("without a sink %d are missing", missing)
	}
}

// Pairs are compared run by run, so a drift of the machine that hits both does not widen the ratio.
func TestRatio(t *testing.T) {
	a, b := &Case{}, &Case{}
	for i, speed := range []float64{100, 50, 200} {
		a.Runs = append(a.Runs, Run{Number: i + 1, Values: map[string]float64{"value": 2 * speed}})
		b.Runs = append(b.Runs, Run{Number: i + 1, Values: map[string]float64{"value": speed}})
	}
	a.Runs = append(a.Runs, Run{Number: 4, Values: map[string]float64{"value": 1}}, Run{Number: 5, Failed: "x", Values: map[string]float64{"value": 1}})
	b.Runs = append(b.Runs, Run{Number: 5, Values: map[string]float64{"value": 1}})
	if got := Ratio(a, b, Value("value")); got != (Spread{2, 2, 2}) {
		t.Errorf("%v", got)
	}
}

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

func sample() *Report {
	bad := Run{Number: 2, Gens: []*gen.Result{result(100, 2*time.Second, 5, 0, 10)}, Usage: &machine.Usage{Contaminated: []string{"go used 30 %"}, Drops: 4}}
	bad.Gens[0].Errors["dot 451"] = 3
	return &Report{Title: "A <title>", Command: "make x", Environment: machine.Describe(), Cases: []Case{
		{Group: "g", Name: "one & two", System: "rohrpost", Runs: []Run{{Number: 1, Gens: []*gen.Result{result(100, time.Second, 5, 0, 10)}}, bad}},
		{Group: "g", Name: "three", System: "postfix", Runs: []Run{{Number: 1, Failed: "did not start"}}},
		{Group: "h", Name: "fsync", System: "floor", Runs: []Run{{Number: 1, Values: map[string]float64{"value": 7000}}}},
	}}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := sample().Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"75 [50–100]", "CONTAMINATED errors net", "run 2: go used 30 %", "FAILED", "did not start", "7000", "4 listen drops", "dot 451:3"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := sample().Markdown(&b); err != nil || !strings.Contains(b.String(), "| one & two | rohrpost | 75 [50–100] |") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestHTML(t *testing.T) {
	var b strings.Builder
	if err := sample().HTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A &lt;title&gt;", "one &amp; two", "<svg", "75 [50–100]", `class="doubt"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for i, rest := 0, b.String(); ; i++ {
		_, after, found := strings.Cut(rest, "<svg")
		if !found {
			if i < 3 {
				t.Errorf("the page has %d charts", i)
			}
			return
		}
		svg, after, _ := strings.Cut(after, "</svg>")
		rest = after
		for dec := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>")); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("chart %d: %v", i, err)
			}
		}
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	want := sample()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Read(path + "x"); err == nil {
		t.Error("a missing file is no error")
	}
}
