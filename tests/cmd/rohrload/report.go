package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

type reportCommand struct {
	Files    []string `arg:"" type:"existingfile" help:"Results of gen, sink, bench and peers. Runs of the same case and number become one."`
	JSON     string   `name:"json" placeholder:"FILE" help:"Write the merged report."`
	HTML     string   `name:"html" placeholder:"FILE" help:"Write a page with charts."`
	Markdown string   `name:"markdown" placeholder:"FILE" help:"Write tables for a document."`
	Sent     []string `type:"existingfile" placeholder:"FILE" help:"Ledgers of gen, of one run: with --arrivals every id is compared, where counts prove little."`
	Arrivals []string `type:"existingfile" placeholder:"FILE" help:"Ledgers of sink, of the same run."`
}

// Run merges and shows. Mail that is missing, doubled or broken is an error.
func (c *reportCommand) Run(_ context.Context) error {
	var all []*report.Report
	for _, file := range c.Files {
		r, err := report.Read(file)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	r := report.Merge(all...)
	if err := r.Twice(); err != nil {
		return err
	}
	differ, err := c.compare(r)
	if err != nil {
		return err
	}
	for _, out := range []struct {
		path string
		form func(io.Writer) error
	}{{c.JSON, r.JSON}, {c.HTML, r.HTML}, {c.Markdown, r.Markdown}} {
		if err := report.WriteFile(out.path, out.form); err != nil {
			return err
		}
	}
	if err := r.Table(os.Stdout); err != nil {
		return err
	}
	if len(differ.Missing) > 0 {
		return fmt.Errorf("%w: accepted and not arrived: %s", errFound, first(differ.Missing))
	}
	if len(differ.Strange) > 0 {
		return fmt.Errorf("%w: arrived, and in no ledger of gen: %s", errFound, first(differ.Strange))
	}
	return loss(r)
}

// compare compares ledgers, and notes in the run that they are of what its counts could not tell.
func (c *reportCommand) compare(r *report.Report) (d ledger.Difference, err error) {
	if len(c.Sent)+len(c.Arrivals) == 0 {
		return d, nil
	}
	if len(c.Sent) == 0 || len(c.Arrivals) == 0 || len(r.Cases) != 1 || len(r.Cases[0].Runs) != 1 {
		return d, errors.New("--sent and --arrivals are compared with each other, for a report of one run")
	}
	sent, err := readAll[ledger.Entry](c.Sent)
	if err != nil {
		return d, err
	}
	arrivals, err := readAll[ledger.Arrival](c.Arrivals)
	if err != nil {
		return d, err
	}
	d = ledger.Compare(sent, arrivals)
	hidden := int64(len(d.Hidden) + len(d.Strange))
	r.Cases[0].Runs[0].Hidden = &hidden
	return d, nil
}

func readAll[T any](paths []string) (all []T, err error) {
	for _, path := range paths {
		records, err := ledger.Read[T](path)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

// first names some of many.
func first(all []string) string {
	const some = 10
	if len(all) > some {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:some], ", "), len(all)-some)
	}
	return strings.Join(all, ", ")
}

// loss is an error where a run of a report has lost, doubled or broken mail.
func loss(r *report.Report) error {
	for i := range r.Cases {
		for j := range r.Cases[i].Runs {
			run := &r.Cases[i].Runs[j]
			if missing, twice, broken := report.Lost(run); missing+twice+broken > 0 {
				return fmt.Errorf("%w: %d missing, %d doubled, %d broken (run %d of %s %s)", errFound, missing, twice, broken, run.Number, r.Cases[i].Name, r.Cases[i].System)
			}
		}
	}
	return nil
}

// unmeasured is an error where no run of a case could be measured.
func unmeasured(r *report.Report) error {
	var cases []string
	for i := range r.Cases {
		c := &r.Cases[i]
		if !slices.ContainsFunc(c.Runs, func(run report.Run) bool { return run.Failed == "" }) {
			cases = append(cases, c.Name+" "+c.System)
		}
	}
	if len(cases) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cases were not measured, see FAILED: %s", len(cases), len(r.Cases), strings.Join(cases, "; "))
}

// commandLine is how this program was called, without the folder it lies in.
func commandLine() string {
	return strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " ")
}
