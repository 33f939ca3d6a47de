// Package report puts what load tests measured into one file of JSON, a table for terminals and a page with charts. A case
// is measured several times, each with fresh processes; what counts is the median, with the lowest and the highest.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
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
	// Elsewhere are the environments of other machines that took part.
	Elsewhere []machine.Environment `json:"elsewhere,omitempty"`
	Cases     []Case                `json:"cases"`
	Ratios    []Ratio               `json:"ratios,omitempty"`
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
	// Whole is the time from the first message until the last one had arrived at the sink, in seconds, where one clock tells both.
	Whole float64 `json:"whole_s,omitempty"`
	// Hidden is how many messages arrived though the sender was not told that they were accepted; nil where nobody compared ids.
	Hidden *int64 `json:"hidden,omitempty"`
	// Values are figures of one kind of case only, such as share_gc.
	Values map[string]float64 `json:"values,omitempty"`
	// Failed says why there is no figure.
	Failed string `json:"failed,omitempty"`
}

// Set notes a value.
func (r *Run) Set(key string, value float64) {
	if r.Values == nil {
		r.Values = map[string]float64{}
	}
	r.Values[key] = value
}

// Watched notes what was used in a part of the run. A run that is watched several times has the highest peaks of memory, every
// doubt, and the last one's CPU.
func (r *Run) Watched(usage machine.Usage) {
	usage.Groups = maps.Clone(usage.Groups)
	if before := r.Usage; before != nil {
		for name, then := range before.Groups {
			now := usage.Groups[name]
			now.PeakPSS = max(now.PeakPSS, then.PeakPSS)
			usage.Groups[name] = now
		}
		usage.Contaminated = append(slices.Clip(before.Contaminated), usage.Contaminated...)
	}
	r.Usage = &usage
}

// Spread is a figure over the N runs of a case that have it.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// Of is the spread of values.
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
	return Spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1], N: len(sorted)}
}

// Spread is the spread of a figure over the runs that have it.
func (c *Case) Spread(figure func(*Run) float64) Spread {
	var values []float64
	for i := range c.Runs {
		if c.Runs[i].Failed != "" {
			continue
		}
		if v := figure(&c.Runs[i]); !math.IsNaN(v) {
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
	for i := range r.Cases {
		for _, run := range r.Cases[i].Runs {
			if slices.Contains(run.Gens, nil) || slices.Contains(run.Sinks, nil) {
				return nil, fmt.Errorf("reading a report: %s: %w", path, errors.New("a generator or sink is null"))
			}
		}
	}
	return &r, nil
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// WriteFile writes one form of a report, such as [Report.JSON] or [Report.HTML], to a file. An empty path means that it is not
// wanted.
func WriteFile(path string, form func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	err := form(&b)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}
