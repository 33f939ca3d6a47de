package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

type reportCommand struct {
	Files    []string `arg:"" type:"existingfile" help:"Results of gen, sink, bench and peers. Runs of the same case and number become one."`
	JSON     string   `name:"json" placeholder:"FILE" help:"Write the merged report."`
	HTML     string   `name:"html" placeholder:"FILE" help:"Write a page with charts."`
	Markdown string   `name:"markdown" placeholder:"FILE" help:"Write tables for a document."`
}

// Run merges and shows.
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
	if c.JSON != "" {
		if err := r.Write(c.JSON); err != nil {
			return err
		}
	}
	if err := write(c.HTML, r.HTML); err != nil {
		return err
	}
	if err := write(c.Markdown, r.Markdown); err != nil {
		return err
	}
	return r.Table(os.Stdout)
}

// write writes one form of a report to a file; an empty path means that it is not wanted.
func write(path string, form func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	if err := form(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}

// commandLine is how this program was called, without the folder it lies in.
func commandLine() string {
	return strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " ")
}
