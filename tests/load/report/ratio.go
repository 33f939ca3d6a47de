package report

import (
	"fmt"
	"math"
)

// Ratio compares a system with another that was measured in turn with it in the same case.
type Ratio struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Over   string `json:"over"`   // the system that is compared
	Under  string `json:"under"`  // the one it is compared with
	Figure string `json:"figure"` // what of
	Spread Spread `json:"spread"`
}

var ratioHeader = []string{"case", "ratio", "of", "median [lowest–highest]", "rounds"}

// ratioRows are the ratios for tables.
func (r *Report) ratioRows() []row {
	rows := make([]row, 0, len(r.Ratios))
	for _, c := range r.Ratios {
		s := c.Spread
		rows = append(rows, row{Cells: []string{
			c.Group + ": " + c.Name, c.Over + " ÷ " + c.Under, c.Figure, fmt.Sprintf("%.2f [%.2f–%.2f]", s.Median, s.Min, s.Max), fmt.Sprint(s.N),
		}})
	}
	return rows
}

// Compare notes how a system compares with each other one, case by case: of what goes the whole way where that was measured,
// else of what is accepted.
func (r *Report) Compare(system string) {
	for i := range r.Cases {
		ours := &r.Cases[i]
		if ours.System != system {
			continue
		}
		name, figure := "msg/s", Rate
		if ours.Spread(WholeRate).N > 0 {
			name, figure = "whole way/s", WholeRate
		}
		for j := range r.Cases {
			other := &r.Cases[j]
			if other.Group != ours.Group || other.Name != ours.Name || other.System == ours.System {
				continue
			}
			if s := ratio(ours, other, figure, figure); s.N > 0 {
				r.Ratios = append(r.Ratios, Ratio{Group: ours.Group, Name: ours.Name, Over: ours.System, Under: other.System, Figure: name, Spread: s})
			}
		}
	}
}

// ratio compares a figure of a case with one of another that was measured in turn with it: run by run, so that what drifts
// on the machine hits both. A run in which the other did nothing has no ratio.
func ratio(a, b *Case, over, under func(*Run) float64) Spread {
	var ratios []float64
	for i := range a.Runs {
		for j := range b.Runs {
			if a.Runs[i].Number != b.Runs[j].Number || a.Runs[i].Failed != "" || b.Runs[j].Failed != "" {
				continue
			}
			if x, y := over(&a.Runs[i]), under(&b.Runs[j]); !math.IsNaN(x) && y > 0 {
				ratios = append(ratios, x/y)
			}
		}
	}
	return Of(ratios...)
}
