package report

import (
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/tests/load/machine"
)

// A sheet has medians with their spread, ratios round by round, and what speaks against a round; not what was not measured.
func TestSheet(t *testing.T) {
	runs := func(key string, values ...float64) (all []Run) {
		for i, v := range values {
			all = append(all, Run{Number: i + 1, Values: map[string]float64{key: v}})
		}
		return all
	}
	a, b := runs("x", 10, 30, 90), runs("y", 1, 2, 3)
	b[2].Failed = "no such thing"
	a[1].Watched(machine.Usage{Contaminated: []string{"others"}})
	r := &Report{Command: "make it", Cases: []Case{{Name: "a", Runs: a}, {Name: "b", Runs: b}}}
	var text strings.Builder
	err := r.Sheet(&text, "in the dark", []Section{
		{Title: "All", Case: "a", Figures: []Figure{
			{Name: "value", Key: "x", Format: "%.0f"},
			{Name: "ratio", Key: "x", Format: "%.1f", Of: &Figure{In: "b", Key: "y"}},
			{Name: "elsewhere", Key: "y", Format: "%.0f", In: "b"},
			{Name: "nothing", Key: "z", Format: "%.0f"},
		}},
		{Title: "Nothing", Case: "c", Figures: []Figure{{Name: "value", Key: "x", Format: "%.0f"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"`make it`; in the dark.", "All\n\n| | |\n|---|---|\n| value | 30 [10–90] |\n| ratio | 12.5 [10.0–15.0] |\n| elsewhere | 2 [1–2] |\n\n",
		"* CONTAMINATED a, round 2: others\n", "* FAILED b, round 3: no such thing\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the sheet has no %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(strings.ToLower(text.String()), "nothing") {
		t.Errorf("what was not measured is in the sheet:\n%s", text.String())
	}
}

// A run that is watched twice has the highest peak and all doubts.
func TestWatchedTwice(t *testing.T) {
	usage := func(pss int64, cpu float64, doubt string) machine.Usage {
		return machine.Usage{Groups: map[string]machine.Group{"server": {PeakPSS: pss, CPU: cpu}}, Contaminated: []string{doubt}}
	}
	var run Run
	first := usage(5, 1, "a")
	run.Watched(first)
	run.Watched(usage(3, 2, "b"))
	if g := run.Usage.Groups["server"]; g.PeakPSS != 5 || g.CPU != 2 || strings.Join(run.Usage.Contaminated, "") != "ab" {
		t.Errorf("%+v", run.Usage)
	}
	if first.Groups["server"].CPU != 1 {
		t.Error("what was given has changed")
	}
}
