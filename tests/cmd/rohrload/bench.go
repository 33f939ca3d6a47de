package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// benchFlags are those of bench and peers.
type benchFlags struct {
	Rohrpost string `default:".bin/rohrpost" type:"existingfile" help:"Program that is measured."`
	Rounds   int    `default:"3" help:"How often each case is measured; 3 to 5."`
	Full     bool   `help:"The whole matrix, and longer measurements."`
	Only     string `placeholder:"REGEXP" help:"Only cases whose group, name and system match."`
	Dir      string `default:"bench-results" help:"Folder for the results: JSON, HTML and Markdown."`
	Data     string `type:"existingdir" help:"Folder on a disk for the data of all servers while they are measured (default: the system's folder for such)."`
	Volatile bool   `help:"Allow a --data that keeps nothing, such as a tmpfs: no figure is of durable mail then."`
}

func (f *benchFlags) options(title string) (bench.Options, error) {
	self, err := os.Executable()
	if err != nil {
		return bench.Options{}, err
	}
	o := bench.Options{
		Rohrpost: f.Rohrpost, Rohrload: self, Rounds: f.Rounds, Full: f.Full, Log: os.Stderr, Title: title, Command: commandLine(),
		Data: f.Data, Volatile: f.Volatile,
	}
	if f.Only != "" {
		if o.Only, err = regexp.Compile(f.Only); err != nil {
			return o, fmt.Errorf("--only: %w", err)
		}
	}
	// Servers that are started inherit it: 10 000 sessions, and as many of the sink.
	return o, gen.RaiseFiles(13_000)
}

type benchCommand struct{ benchFlags }

// Run measures this pipeline.
func (c *benchCommand) Run(ctx context.Context) error {
	o, err := c.options("Rohrpost")
	if err != nil {
		return err
	}
	r, err := bench.Matrix(ctx, o)
	return c.finish(r, "bench", err)
}

type peersCommand struct{ benchFlags }

// Run measures this pipeline and others.
func (c *peersCommand) Run(ctx context.Context) error {
	o, err := c.options("Rohrpost beside others, and the machine's floors")
	if err != nil {
		return err
	}
	r, err := bench.Peers(ctx, o)
	return c.finish(r, "bench-peers", err)
}

// finish shows and keeps what was measured, even where that was cut short.
func (f *benchFlags) finish(r *report.Report, name string, err error) error {
	if r == nil {
		return err
	}
	if tableErr := r.Table(os.Stdout); err == nil {
		err = tableErr
	}
	writeErr := bench.Write(r, f.Dir, name)
	if writeErr == nil {
		fmt.Fprintf(os.Stderr, "written: %s.json, .html and .md\n", filepath.Join(f.Dir, name))
	}
	if err == nil {
		err = writeErr
	}
	if err == nil {
		err = loss(r)
	}
	if err == nil {
		err = unmeasured(r)
	}
	return err
}
