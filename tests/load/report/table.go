package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/machine"
)

// column is a figure of a case in the table.
type column struct {
	title  string
	figure func(*Run) float64
	format string
	spread bool // with lowest and highest
}

// columns in their order. One that no case of a group has is left out.
func columns(groups []string) []column {
	cols := []column{
		{"msg/s", Rate, "%.0f", true},
		{"sessions/s", SessionRate, "%.0f", false},
		{"open at once", Open, "%.0f", false},
		{"whole way/s", WholeRate, "%.0f", true},
		{"arrived/s", ArrivalRate, "%.0f", true},
		{"value", Value("value"), "%.0f", true},
		{"mean cycle ms", Mean, "%.1f", false},
		{"N/X ms", Little, "%.1f", false},
	}
	for _, group := range groups {
		cols = append(cols, column{"CPU µs/msg " + group, CPU(group), "%.0f", false})
	}
	for _, group := range groups {
		cols = append(cols, column{"PSS MiB " + group, PSS(group), "%.0f", false})
	}
	return append(cols,
		column{"GC %", func(r *Run) float64 { return 100 * Value("share_gc")(r) }, "%.1f", false},
		column{"batch", Value("batch"), "%.1f", false},
		column{"start s", seconds(func(r *Run) float64 { return r.Startup }), "%.2f", false},
		column{"stop s", seconds(func(r *Run) float64 { return r.Shutdown }), "%.2f", false},
	)
}

// section is the cases of one group with their cells, for the table and the page.
type section struct {
	Title  string
	Header []string
	Rows   []row
	Notes  []string
	cases  []*Case
}

type row struct{ Cells []string }

// sections makes a section for each group of cases, in the order in which they were measured.
func (r *Report) sections() ([]section, error) {
	var all []section
	for i := range r.Cases {
		c := &r.Cases[i]
		at := slices.IndexFunc(all, func(s section) bool { return s.Title == c.Group })
		if at < 0 {
			all = append(all, section{Title: c.Group})
			at = len(all) - 1
		}
		all[at].cases = append(all[at].cases, c)
	}
	for i := range all {
		if err := all[i].fill(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *section) fill() error {
	var cols []column
	for _, col := range columns(s.groups()) {
		if slices.ContainsFunc(s.cases, func(c *Case) bool { return c.Spread(col.figure).N > 0 }) {
			cols = append(cols, col)
		}
	}
	timed := slices.ContainsFunc(s.cases, func(c *Case) bool { return len(c.Runs) > 0 && len(c.Runs[0].Gens) > 0 })
	s.Header = []string{"case", "system"}
	for _, col := range cols {
		s.Header = append(s.Header, col.title)
	}
	if timed {
		s.Header = append(s.Header, "p50", "p95", "p99", "max ms")
	}
	s.Header = append(s.Header, "runs", "marks")
	for _, c := range s.cases {
		cells := []string{c.Name, c.System}
		for _, col := range cols {
			cells = append(cells, cell(c.Spread(col.figure), col))
		}
		if timed {
			l, err := c.Latency(func(g *gen.Result) latency.Summary { return g.Message })
			if err != nil {
				return err
			}
			for _, ms := range []float64{l.P50, l.P95, l.P99, l.Max} {
				cells = append(cells, fmt.Sprintf("%.1f", ms))
			}
		}
		marks, notes := c.marks()
		s.Notes = append(s.Notes, notes...)
		s.Rows = append(s.Rows, row{Cells: append(cells, c.counted(), marks)})
	}
	return nil
}

// counted is the number of runs; where some failed, how many of them the figures are of.
func (c *Case) counted() string {
	well := 0
	for _, run := range c.Runs {
		if run.Failed == "" {
			well++
		}
	}
	if well < len(c.Runs) {
		return fmt.Sprintf("%d of %d", well, len(c.Runs))
	}
	return fmt.Sprint(well)
}

func cell(s Spread, col column) string {
	switch {
	case s.N == 0:
		return "–"
	case col.spread && s.Min != s.Max:
		return fmt.Sprintf(col.format+" ["+col.format+"–"+col.format+"]", s.Median, s.Min, s.Max)
	}
	return fmt.Sprintf(col.format, s.Median)
}

// groups are the groups of processes whose use was measured, in a steady order.
func (s *section) groups() []string {
	var names []string
	for _, c := range s.cases {
		for _, run := range c.Runs {
			if run.Usage == nil {
				continue
			}
			for name := range run.Usage.Groups {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	order := []string{"server", "gateway", "postgres", "generator", "sink"}
	slices.SortFunc(names, func(a, b string) int {
		ia, ib := slices.Index(order, a), slices.Index(order, b)
		if ia != ib && ia >= 0 && ib >= 0 {
			return ia - ib
		}
		return strings.Compare(a, b)
	})
	return names
}

// Table writes the report for a terminal: figures are medians, with lowest and highest in brackets.
func (r *Report) Table(w io.Writer) error {
	sections, err := r.sections()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n%s\n%s\n", r.Title, r.Command, strings.Join(r.Machines(), "\n"))
	for _, s := range sections {
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(t, "\n%s\n%s\n", s.Title, strings.Join(s.Header, "\t"))
		for _, row := range s.Rows {
			_, _ = fmt.Fprintln(t, strings.Join(row.Cells, "\t"))
		}
		err = t.Flush()
		for _, n := range s.Notes {
			_, _ = fmt.Fprintln(w, "  "+n)
		}
	}
	if err == nil && len(r.Ratios) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(t, "\nratios, round by round\n%s\n", strings.Join(ratioHeader, "\t"))
		for _, row := range r.ratioRows() {
			_, _ = fmt.Fprintln(t, strings.Join(row.Cells, "\t"))
		}
		err = t.Flush()
	}
	return err
}

// Machines describes each environment in one line.
func (r *Report) Machines() []string {
	lines := []string{describe(&r.Environment)}
	for i := range r.Elsewhere {
		lines = append(lines, describe(&r.Elsewhere[i]))
	}
	return lines
}

func describe(e *machine.Environment) string {
	line := fmt.Sprintf("%s: %d cores (%s), %d GiB, %s, Linux %s, %s", e.Time.Format("2006-01-02 15:04"), e.Cores, e.CPU, e.Memory>>30, e.System, e.Kernel, e.Go)
	names := make([]string, 0, len(e.Others))
	for name := range e.Others {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line += ", " + name + " " + e.Others[name]
	}
	if e.Commit != "" {
		line += ", commit " + e.Commit
	}
	if e.Data != "" {
		line += ", data on " + e.Data
	}
	return line
}

// Markdown writes the same tables for a document.
func (r *Report) Markdown(w io.Writer) error {
	sections, err := r.sections()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n\nCommand: `%s`\n", strings.Join(r.Machines(), "\n\n"), r.Command)
	for _, s := range sections {
		if err != nil {
			return err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "\n### %s\n\n| %s |\n|%s\n", s.Title, strings.Join(s.Header, " | "), strings.Repeat("---|", len(s.Header)))
		for _, row := range s.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row.Cells, " | "))
		}
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "\n* %s", n)
		}
		_, err = io.WriteString(w, b.String()+"\n")
	}
	if err != nil || len(r.Ratios) == 0 {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Ratios, round by round\n\n| %s |\n|%s\n", strings.Join(ratioHeader, " | "), strings.Repeat("---|", len(ratioHeader)))
	for _, row := range r.ratioRows() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row.Cells, " | "))
	}
	_, err = io.WriteString(w, b.String())
	return err
}
