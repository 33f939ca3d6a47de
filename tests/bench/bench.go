// Package bench measures: this pipeline over a matrix of cases ([Matrix]), and this pipeline, other servers and the machine's
// floors in turn ([Peers]). Every measurement has fresh processes and a warm-up, and is made several times in rounds over all
// cases, so that what drifts on the machine hits all of them. See docs/performance.md.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// Options say how it is measured.
type Options struct {
	Rohrpost string         // the program that is measured
	Rohrload string         // the program that makes the load
	Rounds   int            // how often each case is measured
	Full     bool           // the whole matrix
	Only     *regexp.Regexp // cases, as "group name system"; nil means all
	Log      io.Writer      // gets the progress
	Slack    time.Duration  // on top of every bound, for tests on a busy machine
	Title    string
	Command  string
	Data     string // folder on a disk, for the data of all servers; empty means the system's folder for such
	Volatile bool   // it may be one that keeps nothing, such as a tmpfs: then nothing that is called durable is

	bound    time.Duration     // the longest it takes; 0 means what the cases are estimated to take, and half as much again
	base     string            // folder of the database server
	versions map[string]string // of other programs that were measured, by name
}

// load is what a generator does in a case.
type load struct {
	sessions   int
	perSession int // 0 keeps sessions
	size       int // octets of a message
	startTLS   bool
	ramp       time.Duration
	warmFor    time.Duration
	duration   time.Duration // after the warm-up; where it is 0, messages count
	warmUp     int64
	messages   int64
}

// entry is a case to measure.
type entry struct {
	group, name, system string
	start               peers.Start
	load                load
	next                bool                                                              // a sink takes what is delivered, and the time runs until it has all
	takes               time.Duration                                                     // estimate of one measurement
	value               func(ctx context.Context, dir string) (map[string]float64, error) // in place of start: a floor without a server
	scenario            func(ctx context.Context, place Place, run *report.Run) error     // in place of start: it does all by itself
}

func (e *entry) title() string { return e.group + " " + e.name + " " + e.system }

// run measures entries in rounds.
func run(ctx context.Context, o Options, entries []entry) (*report.Report, error) {
	r := &report.Report{Title: o.Title, Command: o.Command, Environment: machine.Describe()}
	var chosen []entry
	var estimate time.Duration
	for _, e := range entries {
		if o.Only == nil || o.Only.MatchString(e.title()) {
			chosen = append(chosen, e)
			estimate += e.takes * time.Duration(o.Rounds)
			r.Cases = append(r.Cases, report.Case{Group: e.group, Name: e.name, System: e.system})
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("bench: no case has such a name; there are:%s", titles(entries))
	}
	if o.Rounds < 1 {
		return nil, fmt.Errorf("bench: %d rounds measure nothing", o.Rounds)
	}
	var err error
	if r.Environment.Data, err = o.disk(); err != nil {
		return nil, err
	}
	if o.base, err = o.TempDir(); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.base) //nolint:errcheck // a folder of our own
	if o.versions != nil {
		r.Environment.Others = o.versions
	}
	o.versions = r.Environment.Others
	if commit := machine.Commit(o.Rohrpost); commit != "" {
		o.versions["rohrpost"] = commit
	}
	bound := o.bound
	if bound == 0 {
		bound = estimate*3/2 + time.Minute + o.Slack
	}
	_, _ = fmt.Fprintf(o.Log, "%d cases × %d rounds: about %s, at most %s\n", len(chosen), o.Rounds, estimate.Round(time.Second), bound.Round(time.Second))
	timed, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for round := 1; round <= o.Rounds; round++ {
		for i := range chosen {
			begun := time.Now()
			result := measure(timed, o, &chosen[i], round)
			if timed.Err() != nil {
				return finish(ctx, o, r) // it was cut short
			}
			r.Cases[i].Runs = append(r.Cases[i].Runs, result)
			_, _ = fmt.Fprintf(o.Log, "round %d, %d of %d, %4.1f s: %s: %s\n",
				round, i+1, len(chosen), time.Since(begun).Seconds(), chosen[i].title(), words(&result))
		}
	}
	return finish(ctx, o, r)
}

// titles are the names of cases, one a line.
func titles(entries []entry) string {
	var all strings.Builder
	for i := range entries {
		all.WriteString("\n  " + entries[i].title())
	}
	return all.String()
}

// finish leaves out cases that were not measured, as for want of time, and says so. Where none was there is no report, which would
// only take the place of an earlier one.
func finish(ctx context.Context, o Options, r *report.Report) (*report.Report, error) {
	why := "the time is over"
	if ctx.Err() != nil {
		why = "it was broken off"
	}
	measured := r.Cases[:0]
	for _, c := range r.Cases {
		if len(c.Runs) > 0 {
			measured = append(measured, c)
		} else {
			_, _ = fmt.Fprintf(o.Log, "not measured, %s: %s %s %s\n", why, c.Group, c.Name, c.System)
		}
	}
	r.Cases = measured
	if len(measured) == 0 {
		return nil, cmp.Or(ctx.Err(), errors.New("bench: the time did not suffice for a single case"))
	}
	return r, ctx.Err()
}

// words tell a result in a line.
func words(r *report.Run) string {
	switch {
	case r.Failed != "":
		return "FAILED: " + r.Failed
	case r.Usage == nil:
		return fmt.Sprintf("%.0f/s", r.Values["value"])
	case r.Usage == nil:
		return "no usage"
	}
	text := "measured"
	if len(r.Gens) > 0 {
		text = fmt.Sprintf("%.0f accepted/s", report.Rate(r))
	}
	if r.Whole > 0 {
		text += fmt.Sprintf(", %.0f/s the whole way", report.WholeRate(r))
	}
	for _, reason := range r.Usage.Contaminated {
		text += "; CONTAMINATED: " + reason
	}
	return text
}

// disk tells on what file system servers keep their data. One that keeps nothing is an error unless it is allowed: where an
// fsync costs nothing, no figure that is called durable is one.
func (o *Options) disk() (string, error) {
	dir := o.Data
	if dir == "" {
		dir = os.TempDir()
	}
	kind, nothing := machine.FileSystem(dir)
	switch {
	case nothing && !o.Volatile:
		return "", fmt.Errorf("bench: %s is on a %s, where nothing is durable: give a folder on a disk (--data), or say --volatile", dir, kind)
	case nothing:
		kind += ": NOTHING IS DURABLE THERE"
	}
	return kind, nil
}

// TempDir makes a folder that the users of Postgres and Postfix can enter.
func (o *Options) TempDir() (string, error) {
	dir, err := os.MkdirTemp(o.Data, "rohrload-bench-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // see above
	}
	return dir, err
}

// measure makes one measurement. What goes wrong becomes part of the result, since one case must not end the others.
func measure(ctx context.Context, o Options, e *entry, round int) report.Run {
	result := report.Run{Number: round}
	limit := 3*e.takes + 30*time.Second + o.Slack
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir, err := o.TempDir()
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a folder of our own
	}
	if err == nil && e.value != nil {
		result.Values, err = e.value(ctx, dir)
	} else if err == nil && e.scenario != nil {
		err = e.scenario(ctx, Place{Dir: dir, Base: o.base}, &result)
	} else if err == nil {
		m := &measurement{options: o, entry: e, dir: dir, result: &result}
		err = m.run(ctx)
	}
	if err != nil {
		result.Failed = err.Error()
	}
	return result
}

// Write writes a report into a folder: NAME.json, NAME.html and NAME.md.
func Write(r *report.Report, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("bench: %w", err)
	}
	for ext, form := range map[string]func(io.Writer) error{".json": r.JSON, ".html": r.HTML, ".md": r.Markdown} {
		if err := report.WriteFile(filepath.Join(dir, name+ext), form); err != nil {
			return err
		}
	}
	return nil
}
