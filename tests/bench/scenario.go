package bench

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

// Scenario is a case that starts what it measures by itself, and fills in the values and the usage of a run.
type Scenario struct {
	Group, Name string
	Takes       time.Duration // about, of one measurement
	Measure     func(ctx context.Context, place Place, run *report.Run) error
}

// Place is where a scenario may write.
type Place struct {
	Dir  string // empty, for this measurement alone; other users can enter it
	Base string // for a database server's folder, which outlives the measurement, so that it is made once
}

// Title is what [Options].Only is matched with.
func (s *Scenario) Title() string { return s.Group + " " + s.Name + " " + ours }

const ours = "rohrpost"

// Scenarios measures scenarios in rounds.
func Scenarios(ctx context.Context, o Options, all []Scenario) (*report.Report, error) {
	entries := make([]entry, len(all))
	for i, s := range all {
		entries[i] = entry{group: s.Group, name: s.Name, system: ours, takes: s.Takes, scenario: s.Measure}
	}
	return run(ctx, o, entries)
}
