// Package report puts what load tests measured into one file of JSON, a table for terminals and a page with charts. A case
// is measured several times, each with fresh processes; what counts is the median, with the lowest and the highest.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// Report is everything that was measured by one command, or by several that were merged.
type Report struct {
	Title       string              `json:"title"`
	Command     string              `json:"command"` // what makes it again
	Environment machine.Environment `json:"environment"`
	Cases       []Case              `json:"cases"`
}

// Case is one thing measured, several times.
type Case struct {
	Group  string            `json:"group"`  // such as reception
	Name   string            `json:"name"`   // within the group, such as 4KiB kept 50 sessions
	System string            `json:"system"` // what was measured, such as rohrpost or postfix
	Params map[string]string `json:"params,omitempty"`
	Runs   []Run             `json:"runs"`
}

// Run is one measurement. Generators and sinks may be several, and elsewhere.
type Run struct {
	Number int            `json:"number"` // from 1 within its case
	Gens   []*gen.Result  `json:"gens,omitempty"`
	Sinks  []*sink.Stats  `json:"sinks,omitempty"`
	Usage  *machine.Usage `json:"usage,omitempty"`
	// Startup is from the start of the server's processes until it answers; Shutdown from the order to stop until the last has
	// ended; both in seconds and no part of the rate.
	Startup  float64 `json:"startup_s,omitempty"`
	Shutdown float64 `json:"shutdown_s,omitempty"`
	// Whole is the time from the first message until the last one had arrived at the sink, in seconds.
	Whole float64 `json:"whole_s,omitempty"`
	// Values are figures of one kind of case only, such as share_gc.
	Values map[string]float64 `json:"values,omitempty"`
	// Failed says why there is no figure.
	Failed string `json:"failed,omitempty"`
}

// Spread is a figure over the runs of a case.
type Spread struct{ Median, Min, Max float64 }

// Of is the spread of values; zero for none.
func Of(values ...float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Spread is the spread of a figure over the runs that have it. One that is zero or less is none.
func (c *Case) Spread(figure func(*Run) float64) Spread {
	var values []float64
	for i := range c.Runs {
		if c.Runs[i].Failed != "" {
			continue
		}
		if v := figure(&c.Runs[i]); v > 0 {
			values = append(values, v)
		}
	}
	return Of(values...)
}

// Contaminated tells why figures of some runs are not to be trusted, each reason once.
func (c *Case) Contaminated() []string {
	reasons := map[string]bool{}
	for _, run := range c.Runs {
		if run.Usage != nil {
			for _, reason := range run.Usage.Contaminated {
				reasons[fmt.Sprintf("run %d: %s", run.Number, reason)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

// Ratio compares the figure of a case with that of another that was measured in turn with it: run by run, so that what drifts
// on the machine hits both.
func Ratio(a, b *Case, figure func(*Run) float64) Spread {
	var ratios []float64
	for i := range a.Runs {
		for j := range b.Runs {
			if a.Runs[i].Number == b.Runs[j].Number && a.Runs[i].Failed == "" && b.Runs[j].Failed == "" {
				if over, under := figure(&a.Runs[i]), figure(&b.Runs[j]); over > 0 && under > 0 {
					ratios = append(ratios, over/under)
				}
			}
		}
	}
	return Of(ratios...)
}

// Merge puts reports together. Runs of the same number of the same case become one, as where generators and sinks ran on
// several machines: their rates add up, and so do their histograms.
func Merge(reports ...*Report) *Report {
	if len(reports) == 0 {
		return &Report{}
	}
	merged := &Report{Title: reports[0].Title, Command: reports[0].Command, Environment: reports[0].Environment}
	for _, r := range reports {
		for i := range r.Cases {
			merged.add(&r.Cases[i])
		}
	}
	return merged
}

func (r *Report) add(c *Case) {
	for i := range r.Cases {
		have := &r.Cases[i]
		if have.Group == c.Group && have.Name == c.Name && have.System == c.System {
			for _, run := range c.Runs {
				have.add(run)
			}
			return
		}
	}
	added := *c
	added.Runs = nil
	for _, run := range c.Runs {
		added.add(run)
	}
	r.Cases = append(r.Cases, added)
}

func (c *Case) add(run Run) {
	for i := range c.Runs {
		if have := &c.Runs[i]; have.Number == run.Number {
			have.Gens = append(slices.Clip(have.Gens), run.Gens...)
			have.Sinks = append(slices.Clip(have.Sinks), run.Sinks...)
			have.Usage = mergeUsage(have.Usage, run.Usage)
			return
		}
	}
	c.Runs = append(c.Runs, run)
}

// mergeUsage joins what machines say: the groups stand side by side, and each one's complaint counts.
func mergeUsage(a, b *machine.Usage) *machine.Usage {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	u := *a
	u.Groups = maps.Clone(a.Groups)
	maps.Copy(u.Groups, b.Groups)
	u.Contaminated = append(slices.Clip(a.Contaminated), b.Contaminated...)
	u.Overflows, u.Drops, u.Retransmits = a.Overflows+b.Overflows, a.Drops+b.Drops, a.Retransmits+b.Retransmits
	return &u
}

// Latency is the distribution over all runs of a case that did not fail.
func (c *Case) Latency(of func(*gen.Result) latency.Summary) (latency.Summary, error) {
	var all []latency.Summary
	for _, run := range c.Runs {
		if run.Failed != "" {
			continue
		}
		for _, g := range run.Gens {
			all = append(all, of(g))
		}
	}
	return latency.Merge(all...)
}

// Read reads a report, or one run of gen or sink that was written as one.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reading a report: %s: %w", path, err)
	}
	if len(r.Cases) == 0 {
		return nil, fmt.Errorf("reading a report: %s: %w", path, errors.New("it has no cases"))
	}
	return &r, nil
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}
