package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// A run in which nothing was accepted is part of the median, and said to be so; one without a figure is none.
func TestRunsThatTookNothing(t *testing.T) {
	c := &Case{Runs: []Run{
		{Number: 1, Gens: []*gen.Result{result(100, time.Second, 5, 0, 10)}},
		{Number: 2, Gens: []*gen.Result{result(0, time.Second, 5, 0, 10)}},
		{Number: 3, Gens: []*gen.Result{result(0, time.Second, 5, 0, 10)}},
		{Number: 4, Failed: "did not start"},
	}}
	if got := c.Spread(Rate); got != (Spread{0, 0, 100, 3}) {
		t.Errorf("of 100, nothing and nothing %+v", got)
	}
	if got := c.Spread(CPU("server")); got.N != 0 {
		t.Errorf("a figure that no run has: %+v", got)
	}
	signs, notes := c.marks()
	if signs != "FAILED" || len(notes) != 3 || !strings.Contains(notes[0], "run 2: nothing was accepted") || c.counted() != "3 of 4" {
		t.Errorf("marks %q, runs %s, %q", signs, c.counted(), notes)
	}
	var b strings.Builder
	if err := (&Report{Cases: []Case{*c}}).Table(&b); err != nil || !strings.Contains(b.String(), "0 [0–100]") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A measurement that is shorter than a session tells nothing of sessions.
func TestBriefMeasurement(t *testing.T) {
	r := &Run{Number: 1, Gens: []*gen.Result{result(1000, 2*time.Second, 50, 10, 1000)}}
	g := r.Gens[0]
	g.Sessions, g.Completed, g.Cut = 150, 60, 50
	if SessionRate(r) != 30 || math.Abs(Little(r)-50./30*1000) > 1e-6 {
		t.Errorf("%g sessions/s, N/X %g ms", SessionRate(r), Little(r))
	}
	g.Completed, g.Cut = 40, 50
	for name, figure := range map[string]func(*Run) float64{"sessions/s": SessionRate, "N/X": Little, "mean": Mean} {
		if v := figure(r); !math.IsNaN(v) {
			t.Errorf("%s is %g though fewer ended than were open", name, v)
		}
	}
	if signs, _ := (&Case{Runs: []Run{*r}}).marks(); signs != "brief" {
		t.Errorf("marked %q", signs)
	}
	g.Offered, g.Completed, g.Cut = 25, 40, 30
	if v := SessionRate(r); v != 20 {
		t.Errorf("at a rate: %g sessions/s", v)
	}
	if g.Cut = 41; !math.IsNaN(SessionRate(r)) {
		t.Errorf("at a rate, most cut short: %g sessions/s", SessionRate(r))
	}
}

// Where sessions begin at a rate of their own, the limit of sessions says nothing.
func TestOfferedRate(t *testing.T) {
	r := &Run{Gens: []*gen.Result{result(1000, 2*time.Second, 50, 1, 10)}}
	if math.IsNaN(Little(r)) {
		t.Error("a closed loop has no N/X")
	}
	r.Gens[0].Offered, r.Gens[0].Peak = 500, 3
	if signs, _ := (&Case{Runs: []Run{*r}}).marks(); !math.IsNaN(Little(r)) || SessionRate(r) != 500 || signs != "" {
		t.Errorf("N/X %g, %g sessions/s, marked %q", Little(r), SessionRate(r), signs)
	}
}

// That sessions were not open at once is seen.
func TestFewerSessions(t *testing.T) {
	r := Run{Number: 1, Gens: []*gen.Result{result(1000, time.Second, 10_000, 0, 10)}}
	if signs, _ := (&Case{Runs: []Run{r}}).marks(); signs != "" || Open(&r) != 10_000 {
		t.Errorf("marked %q, %g open", signs, Open(&r))
	}
	r.Gens[0].Peak = 6500
	signs, notes := (&Case{Runs: []Run{r}}).marks()
	if signs != "fewer" || !strings.Contains(notes[0], "6500 of 10000") || Open(&r) != 6500 {
		t.Errorf("marked %q, %q", signs, notes)
	}
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
		"PSS":    {PSS("server")(r), 3},
		"value":  {Value("x")(r), 7},
	} {
		if !(math.Abs(c.got-c.want) <= c.want/500) { // not a number is no figure
			t.Errorf("%s is %g, want %g", name, c.got, c.want)
		}
	}
	for name, figure := range map[string]func(*Run) float64{"CPU": CPU("nobody"), "PSS": PSS("nobody"), "value": Value("y"), "sessions/s": SessionRate} {
		if v := figure(r); !math.IsNaN(v) {
			t.Errorf("%s that nobody measured is %g", name, v)
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
	hidden := int64(2) // that arrived and were never said to be accepted
	r.Hidden = &hidden
	if missing, _, _ := Lost(r); missing != 5 {
		t.Errorf("with 2 hidden ones %d are missing", missing)
	}
	r.Failed = "the time was over"
	if missing, twice, broken := Lost(r); missing != 0 || twice != 2 || broken != 1 {
		t.Errorf("of a run that failed: %d %d %d", missing, twice, broken)
	}
	gens := r.Gens
	r.Gens, r.Failed = nil, ""
	if missing, twice, broken := Lost(r); missing != 0 || twice != 2 || broken != 1 {
		t.Errorf("of a sink alone: %d %d %d", missing, twice, broken)
	}
	r.Gens, r.Sinks = gens, nil
	if missing, _, _ := Lost(r); missing != 0 {
		t.Errorf("without a sink %d are missing", missing)
	}
}

// A count does not prove that nothing is lost while messages might have arrived whose sender was told otherwise.
func TestUnproven(t *testing.T) {
	r := Run{Number: 1, Gens: []*gen.Result{result(10, time.Second, 1, 0, 1)}, Sinks: []*sink.Stats{{Distinct: 10}}}
	if signs, _ := (&Case{Runs: []Run{r}}).marks(); signs != "" {
		t.Errorf("marked %q", signs)
	}
	r.Gens[0].Doubts = 3
	if signs, notes := (&Case{Runs: []Run{r}}).marks(); signs != "unproven" || !strings.Contains(notes[0], "of 3 messages") {
		t.Errorf("marked %q, %q", signs, notes)
	}
	hidden := int64(1) // one of the three came, so one of the ten did not
	r.Hidden = &hidden
	if signs, notes := (&Case{Runs: []Run{r}}).marks(); signs != "LOSS?" || !strings.Contains(notes[0], "1 accepted and not arrived") {
		t.Errorf("marked %q, %q", signs, notes)
	}
}
