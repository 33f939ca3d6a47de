package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
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
		{[]float64{5}, Spread{5, 5, 5, 1}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}},
		{[]float64{100, 0, 0}, Spread{0, 0, 100, 3}},
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
		Counted: n, Messages: n, Accepted: n, Recipients: n, Sessions: n, Peak: int64(concurrency), Message: r.Summary(), Errors: map[string]int64{},
	}
	if perSession > 0 {
		res.Sessions = n / int64(perSession)
		res.Completed = res.Sessions
		res.Session = r.Summary()
	}
	return res
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
	if got := ratio(a, b, Value("value"), Value("value")); got != (Spread{2, 2, 2, 3}) {
		t.Errorf("%v", got)
	}
	a.Runs[2].Values = map[string]float64{"value": 0} // it did nothing: that counts
	b.Runs[1].Values = map[string]float64{"value": 0} // but nothing is a multiple of nothing
	if got := ratio(a, b, Value("value"), Value("value")); got != (Spread{1, 0, 2, 2}) {
		t.Errorf("with zeros: %v", got)
	}
}

// Ratios are part of every form of the report.
func TestCompareSystems(t *testing.T) {
	run := func(n int64) []Run { return []Run{{Number: 1, Gens: []*gen.Result{result(n, time.Second, 5, 0, 10)}}} }
	r := &Report{Cases: []Case{
		{Group: "g", Name: "n", System: "rohrpost", Runs: run(300)},
		{Group: "g", Name: "n", System: "postfix", Runs: run(100)},
		{Group: "g", Name: "other", System: "postfix", Runs: run(1)},
	}}
	r.Compare("rohrpost")
	want := []Ratio{{Group: "g", Name: "n", Over: "rohrpost", Under: "postfix", Figure: "msg/s", Spread: Spread{3, 3, 3, 1}}}
	if diff := cmp.Diff(want, r.Ratios); diff != "" {
		t.Fatal(diff)
	}
	for name, form := range map[string]func(io.Writer) error{"table": r.Table, "markdown": r.Markdown, "html": r.HTML, "json": r.JSON} {
		var b strings.Builder
		if err := form(&b); err != nil || name != "json" && !strings.Contains(b.String(), "3.00 [3.00–3.00]") || !strings.Contains(b.String(), "postfix") {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
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
	if err := WriteFile(path, want.JSON); err != nil {
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
	if err := WriteFile("", want.JSON); err != nil {
		t.Errorf("a form that is not wanted: %v", err)
	}
	if err := WriteFile(filepath.Join(path, "x"), want.JSON); err == nil {
		t.Error("a file below a file is no error")
	}
}

func TestReadOdd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	for text, want := range map[string]string{
		``: "unexpected end", `{}`: "no cases", `[]`: "cannot unmarshal", `{"cases":[{"runs":[{"gens":[`: "unexpected end",
		`{"cases":[{"runs":[{"gens":[null]}]}]}`: "is null", `{"cases":[{"runs":[{"sinks":[null]}]}]}`: "is null",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// The note says what was wrong, and how much was not sent, of which the table has no column.
func TestNotes(t *testing.T) {
	c := Case{Runs: []Run{{
		Gens:  []*gen.Result{{Messages: 9, Refused: 1, Unknown: 2, Failed: 5, Recipients: 1, Errors: map[string]int64{"dial: refused": 7}}},
		Sinks: []*sink.Stats{{Distinct: 1, Faults: map[string]int64{"a bare LF": 1}}, {Faults: map[string]int64{"a bare LF": 2}}},
	}}}
	_, notes := c.marks()
	text := strings.Join(notes, "\n")
	for _, want := range []string{"map[dial: refused:7]; of 9 messages 1 were refused, 2 without an answer, 5 not sent", "3 not as sent: map[a bare LF:3]"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
