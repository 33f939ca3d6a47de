package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The matrix has what issue 4 asks for, and no case twice.
func TestMatrix(t *testing.T) {
	for full, least := range map[bool]int{false: 25, true: 60} {
		m := matrix{Options: Options{Full: full}}
		m.reception()
		m.models()
		m.parsers()
		m.together()
		m.study()
		seen := map[string]bool{}
		var estimate time.Duration
		for _, e := range m.entries {
			if seen[e.title()] {
				t.Errorf("%s twice", e.title())
			}
			seen[e.title()] = true
			estimate += e.takes
			if (e.load.duration > 0) == (e.load.messages > 0) || e.takes < time.Second || e.load.sessions == 0 {
				t.Errorf("%s: %+v, takes %s", e.title(), e.load, e.takes)
			}
		}
		if len(seen) < least {
			t.Errorf("full %t has %d cases only", full, len(seen))
		}
		if !full && 3*estimate > 30*time.Minute {
			t.Errorf("three rounds of the short matrix take %s", 3*estimate)
		}
	}
}

// A case that fails is reported and does not end the others.
func TestFailureIsAResult(t *testing.T) {
	broken := func(context.Context, peers.Options) (*peers.Server, error) { return nil, errors.New("no such thing") }
	value := func(context.Context, string) (map[string]float64, error) { return map[string]float64{"value": 7}, nil }
	r, err := run(t.Context(), Options{Rounds: 3, Log: io.Discard}, []entry{
		{group: "g", name: "a", system: "s", start: broken, takes: time.Second}, {group: "g", name: "b", system: "s", value: value, takes: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Cases[0], r.Cases[1]; len(a.Runs) != 3 || !strings.Contains(a.Runs[2].Failed, "no such") || b.Spread(report.Value("value")).Median != 7 {
		t.Errorf("%+v", r.Cases)
	}
	if _, err := run(t.Context(), Options{Only: regexp.MustCompile("nothing")}, nil); err == nil {
		t.Error("no case is no error")
	}
}

// What was measured when it was cut short is kept, and the rest left out.
func TestCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	measured := 0
	value := func(context.Context, string) (map[string]float64, error) {
		if measured++; measured == 2 {
			cancel()
		}
		return map[string]float64{"value": 7}, nil
	}
	var log strings.Builder
	r, err := run(ctx, Options{Rounds: 3, Log: &log}, []entry{{group: "g", name: "a", value: value}, {group: "g", name: "b", value: value}})
	if !errors.Is(err, context.Canceled) || len(r.Cases) != 1 || len(r.Cases[0].Runs) != 1 || !strings.Contains(log.String(), "not measured") {
		t.Errorf("%v %+v\n%s", err, r, log.String())
	}
	dir := t.TempDir()
	if err := Write(r, dir, "x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.json", "x.html", "x.md"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFsyncs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, anew := range []bool{false, true} {
		if values, err := fsyncs(anew)(ctx, t.TempDir()); err != nil || values["value"] < 0 {
			t.Errorf("%v %v", values, err)
		}
	}
}

func TestRatios(t *testing.T) {
	begin := time.Unix(0, 0)
	rate := func(n int64) report.Run {
		return report.Run{Number: 1, Gens: []*gen.Result{{Warm: begin, Last: begin.Add(time.Second), Counted: n}}}
	}
	var b strings.Builder
	Ratios(&b, &report.Report{Cases: []report.Case{
		{Group: "g", Name: "n", System: "rohrpost", Runs: []report.Run{rate(300)}},
		{Group: "g", Name: "n", System: "postfix", Runs: []report.Run{rate(100)}},
		{Group: "g", Name: "other", System: "postfix", Runs: []report.Run{rate(1)}},
	}})
	if got := b.String(); got != "g, n: rohrpost ÷ postfix = 3.00 [3.00–3.00]\n" {
		t.Errorf("%q", got)
	}
}
