package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/spoolbench"
)

// partFlags are those of commands that measure a part alone.
type partFlags struct {
	Rohrpost string `default:".bin/rohrpost" type:"existingfile" help:"Program that is measured."`
	Rounds   int    `default:"3" help:"How often each case is measured; 3 to 5."`
	Only     string `placeholder:"REGEXP" help:"Only cases whose name matches."`
	Dir      string `default:"bench-results" help:"Folder for the results: JSON and Markdown."`
	Data     string `type:"existingdir" help:"Folder on a disk for the data of all servers while they are measured (default: the system's folder for such)."`
	TLS      bool   `name:"tls" help:"Mutual TLS between the processes, as separate services have it."`
}

func (f *partFlags) options(title string) (bench.Options, error) {
	flags := benchFlags{Rohrpost: f.Rohrpost, Rounds: f.Rounds, Only: f.Only, Data: f.Data}
	return flags.options(title)
}

// keep shows and keeps what was measured, even where that was cut short.
func (f *partFlags) keep(name string, r *report.Report, err error, markdown func(io.Writer) error) error {
	if r == nil {
		return err
	}
	err = errors.Join(err, markdown(os.Stdout))
	if dirErr := os.MkdirAll(f.Dir, 0o755); dirErr != nil { //nolint:gosec // for everybody to read
		return errors.Join(err, fmt.Errorf("keeping the results: %w", dirErr))
	}
	return errors.Join(err, report.WriteFile(filepath.Join(f.Dir, name+".md"), markdown), report.WriteFile(filepath.Join(f.Dir, name+".json"), r.JSON))
}

type spoolCommand struct {
	partFlags
	Deferred       int           `default:"300000" help:"Messages that wait in the full queue."`
	TransactionAge time.Duration `help:"Least age of the long transaction when something is measured beside it; by default as old as the run lets it become."`
	Measure        time.Duration `default:"3s" help:"How long a rate is measured."`
}

// Run measures the spool.
func (c *spoolCommand) Run(ctx context.Context) error {
	base, err := c.options("The spool")
	if err != nil {
		return err
	}
	o := spoolbench.DefaultOptions()
	o.Options, o.Deferred, o.TransactionAge, o.TLS, o.Measure = base, c.Deferred, c.TransactionAge, c.TLS, c.Measure
	r, err := spoolbench.Run(ctx, o)
	return c.keep("spool", r, err, func(w io.Writer) error { return o.Markdown(w, r) })
}
