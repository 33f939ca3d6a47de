package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rohrpost/rohrpost/tests/load/machine"
)

// Merge puts reports together. Runs of the same number of the same case become one, as where generators and sinks ran on
// several machines: their rates add up, and so do their histograms. What the whole way took is known where all were on one
// machine, and so had one clock.
func Merge(reports ...*Report) *Report {
	if len(reports) == 0 {
		return &Report{}
	}
	merged := &Report{Title: reports[0].Title, Command: reports[0].Command, Environment: reports[0].Environment}
	for _, r := range reports {
		for i := range r.Cases {
			merged.add(&r.Cases[i])
		}
		merged.Ratios = append(merged.Ratios, r.Ratios...)
		for _, e := range append([]machine.Environment{r.Environment}, r.Elsewhere...) {
			merged.machineOf(e)
		}
	}
	if merged.Environment.Boot != "" && len(merged.Elsewhere) == 0 {
		for i := range merged.Cases {
			merged.Cases[i].oneClock()
		}
	}
	return merged
}

// Twice is an error where a generator stands in a report twice, as where a file was given again: its rate would be added to itself.
func (r *Report) Twice() error {
	seen := map[string]bool{}
	for i := range r.Cases {
		for _, run := range r.Cases[i].Runs {
			for _, g := range run.Gens {
				if g.Run != "" && seen[g.Run] {
					return fmt.Errorf("generator %s of %s is there twice: was a file given again?", g.Run, r.Cases[i].Name)
				}
				seen[g.Run] = true
			}
		}
	}
	return nil
}

// machineOf notes a machine that took part, once.
func (r *Report) machineOf(e machine.Environment) {
	same := func(o machine.Environment) bool { return o.Boot == e.Boot }
	if !same(r.Environment) && !slices.ContainsFunc(r.Elsewhere, same) {
		r.Elsewhere = append(r.Elsewhere, e)
	}
}

// oneClock tells what the whole way took, from the first message of any generator to the last arrival at any sink.
func (c *Case) oneClock() {
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Whole != 0 || len(r.Gens) == 0 || distinct(r) == 0 {
			continue
		}
		first, last := r.Gens[0].First, r.Sinks[0].Last
		for _, g := range r.Gens {
			if g.First.Before(first) {
				first = g.First
			}
		}
		for _, s := range r.Sinks {
			if s.Last.After(last) {
				last = s.Last
			}
		}
		r.Whole = max(0, last.Sub(first).Seconds())
	}
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
			if have.Failed == "" {
				have.Failed = run.Failed
			}
			return
		}
	}
	c.Runs = append(c.Runs, run)
}

// mergeUsage joins what machines say: groups of one name become one, and each one's complaint counts. Shares of a machine are
// those of the one that had the most.
func mergeUsage(a, b *machine.Usage) *machine.Usage {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	u := *a
	u.Groups = maps.Clone(a.Groups)
	for name, g := range b.Groups {
		sum := u.Groups[name]
		sum.CPU += g.CPU
		sum.PeakPSS += g.PeakPSS
		sum.Processes += g.Processes
		u.Groups[name] = sum
	}
	u.Wall, u.Busy, u.Steal, u.Foreign = max(a.Wall, b.Wall), max(a.Busy, b.Busy), max(a.Steal, b.Steal), max(a.Foreign, b.Foreign)
	u.Contaminated = append(slices.Clip(a.Contaminated), b.Contaminated...)
	u.Overflows, u.Drops = a.Overflows+b.Overflows, a.Drops+b.Drops
	u.Segments, u.Retransmits = a.Segments+b.Segments, a.Retransmits+b.Retransmits
	return &u
}
