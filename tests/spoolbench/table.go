package spoolbench

import (
	"fmt"
	"io"
	"strings"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

// figure is a row of the table: a value of a case, or the ratio of two cases' values.
type figure struct {
	name, key, format string
	of                *figure // the ratio is to this value of another case, round by round
	in                string  // the case where it is not that of the section
}

// section is a table.
type section struct {
	title, of string // of is the case
	figures   []figure
}

// sections are the tables in the order of the document.
func (o *Options) sections() []section {
	river := &figure{in: caseRiver, key: "river"}
	all := []section{
		{fmt.Sprintf("Submit, %d outstanding", o.Outstanding), caseSubmit, append([]figure{
			{name: "accepted a second", key: "submit", format: "%.0f"},
			{name: "messages in a transaction", key: "submit_batch", format: "%.1f"},
			{name: "a plain loop of COPY with as many in a transaction, rows a second", key: "copy", format: "%.0f"},
			{name: "accepted ÷ COPY", key: "submit_of_copy", format: "%.2f"},
			{name: "until the answer, p50, ms", key: "submit_latency_p50", format: "%.1f"},
			{name: "until the answer, p99, ms", key: "submit_latency_p99", format: "%.1f"},
			{name: "a lone submitter, p50, ms", key: "lone_p50", format: "%.2f"},
			{name: "a lone submitter, p99, ms", key: "lone_p99", format: "%.2f"},
			{name: "commit of a single row, p50, ms", key: "commit_p50", format: "%.2f"},
			{name: "commit of a single row, p99, ms", key: "commit_p99", format: "%.2f"},
			{name: "lone submitter ÷ commit, p50", key: "lone_of_commit_p50", format: "%.2f"},
			{name: "lone submitter ÷ commit, p99", key: "lone_of_commit_p99", format: "%.2f"},
		}, costs("submit")...)},
		{"Whole life: submit, three hops, outcome", caseLife, append([]figure{
			{name: "messages a second", key: "life", format: "%.0f"},
		}, costs("life")...)},
		{"River on the same life", caseRiver, append(append([]figure{
			{name: "by transaction, messages a second", key: riverByTransaction, format: "%.0f"},
			{name: "by batch, messages a second", key: riverByBatch, format: "%.0f"},
			{name: "the spool ÷ River's faster way", in: caseLife, key: "life", of: river, format: "%.1f"},
		}, costs(riverByTransaction)...), costs(riverByBatch)...)},
		{"A hop", caseHop, hopFigures()},
		{"Commits in flight", "", commitFigures()},
		{fmt.Sprintf("%d messages deferred", o.Deferred), caseDeferred, append(compared("empty", "full"),
			figure{name: "a claim of 5 that are due, p50, ms", key: "claim_p50", format: "%.1f"},
			figure{name: "a claim of 5 that are due, p99, ms", key: "claim_p99", format: "%.1f"},
			figure{name: "from due to the worker, p50, ms", key: "late_p50", format: "%.0f"},
			figure{name: "from due to the worker, p99, ms", key: "late_p99", format: "%.0f"},
			figure{name: "restart to first job, s", key: "restart", format: "%.2f"},
			figure{name: "stop, what was on its way handed over, s", key: "stop", format: "%.2f"},
			figure{name: "spool's memory after the restart, PSS, MiB", key: "pss_waiting", format: "%.0f"},
			figure{name: "spool's memory under load, PSS, MiB", key: "pss_load", format: "%.0f"},
		)},
		{"A long transaction beside it", caseLong, append([]figure{
			{name: "its age, s", key: "age", format: "%.0f"},
		}, compared("alone", "beside")...)},
		{fmt.Sprintf("%d messages of %d MB at once, each read at each hop", o.Large, o.LargeSize/1_000_000), caseLarge, []figure{
			{name: "accepted, MB a second", key: "in", format: "%.0f"},
			{name: "the whole life, MB a second", key: "whole", format: "%.0f"},
			{name: "spool's memory, PSS, MiB", key: "pss", format: "%.0f"},
			{name: "PostgreSQL's memory, PSS, MiB", key: "pss_postgres", format: "%.0f"},
		}},
	}
	return all
}

// costs are the rows of what cost notes.
func costs(key string) []figure {
	what := ""
	if key == riverByTransaction || key == riverByBatch {
		what = " (" + strings.TrimPrefix(key, "river_") + ")"
	}
	rows := []figure{
		{name: "CPU, µs a message" + what + ": spool", key: key + "_cpu_" + spoolGroup, format: "%.0f"},
		{name: "CPU, µs a message" + what + ": PostgreSQL", key: key + "_cpu_" + postgresGroup, format: "%.0f"},
		{name: "CPU, µs a message" + what + ": submitters and workers", key: key + "_cpu_" + loadGroup, format: "%.0f"},
	}
	if what != "" {
		return rows[1:] // River has no process of its own
	}
	return rows
}

func hopFigures() []figure {
	var rows []figure
	for _, d := range jobTimes {
		key := "hop_" + d.String()
		rows = append(rows,
			figure{name: fmt.Sprintf("beside a job of %s, µs of a core", d), key: key + "_cost", format: "%.1f"},
			figure{name: fmt.Sprintf("beside a job of %s, %% of the job", d), key: key + "_share", format: "%.1f"})
	}
	return rows
}

func commitFigures() []figure {
	var rows []figure
	for _, what := range []struct{ name, key, format string }{
		{"accepted a second", "submit", "%.0f"}, {"messages in a transaction", "submit_batch", "%.1f"}, {"whole lives a second", "life", "%.0f"},
	} {
		for _, n := range []string{"1", "2", "3"} {
			rows = append(rows, figure{name: n + " in flight: " + what.name, in: caseCommits + n, key: what.key, format: what.format})
		}
	}
	return rows
}

// compared are the rows of what compare notes.
func compared(before, now string) []figure {
	return []figure{
		{name: before + ": accepted a second", key: before + "_submit", format: "%.0f"},
		{name: now + ": accepted a second", key: now + "_submit", format: "%.0f"},
		{name: now + " ÷ " + before, key: now + "_of_" + before + "_submit", format: "%.2f"},
		{name: before + ": whole lives a second", key: before + "_life", format: "%.0f"},
		{name: now + ": whole lives a second", key: now + "_life", format: "%.0f"},
		{name: now + " ÷ " + before, key: now + "_of_" + before + "_life", format: "%.2f"},
	}
}

// Markdown writes the tables for docs/performance.md: medians, with the lowest and the highest.
func (o *Options) Markdown(w io.Writer, r *report.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nCommand: `%s`; %s.\n\n", strings.Join(r.Machines(), "; "), r.Command, o.wire())
	for _, s := range o.sections() {
		var rows strings.Builder
		for _, f := range s.figures {
			if f.in == "" {
				f.in = s.of
			}
			if text := f.text(r); text != "" {
				fmt.Fprintf(&rows, "| %s | %s |\n", f.name, text)
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&b, "%s\n\n| | |\n|---|---|\n%s\n", s.title, rows.String())
		}
	}
	for i := range r.Cases {
		marks(&b, &r.Cases[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wire says how the processes talk.
func (o *Options) wire() string {
	if o.TLS {
		return "gRPC with mutual TLS over loopback, as between separate services"
	}
	return "gRPC in clear text over loopback, as within `rohrpost up`"
}

// marks says what speaks against the figures of a case.
func marks(b *strings.Builder, c *report.Case) {
	for _, run := range c.Runs {
		if run.Failed != "" {
			fmt.Fprintf(b, "* FAILED %s, round %d: %s\n", c.Name, run.Number, run.Failed)
		}
		if run.Usage != nil && len(run.Usage.Contaminated) > 0 {
			fmt.Fprintf(b, "* CONTAMINATED %s, round %d: %s\n", c.Name, run.Number, strings.Join(run.Usage.Contaminated, "; "))
		}
	}
}

// text is a figure over all rounds; empty where it was not measured.
func (f *figure) text(r *report.Report) string {
	c := find(r, f.in)
	if c == nil {
		return ""
	}
	var s report.Spread
	if f.of == nil {
		s = spread(c, f.key)
	} else if other := find(r, f.of.in); other != nil {
		s = ratio(c, other, f.key, f.of.key)
	}
	if s == (report.Spread{}) {
		return ""
	}
	if len(c.Runs) < 2 {
		return fmt.Sprintf(f.format, s.Median)
	}
	return fmt.Sprintf(f.format+" ["+f.format+"–"+f.format+"]", s.Median, s.Min, s.Max)
}

func find(r *report.Report, name string) *report.Case {
	for i := range r.Cases {
		if r.Cases[i].Name == name {
			return &r.Cases[i]
		}
	}
	return nil
}

// spread is that of a value over the runs that did not fail. A cost of a hop may be less than zero, by noise.
func spread(c *report.Case, key string) report.Spread {
	var values []float64
	for _, run := range c.Runs {
		if v, ok := run.Values[key]; ok && run.Failed == "" {
			values = append(values, v)
		}
	}
	return report.Of(values...)
}

// ratio is that of two values of two cases, round by round.
func ratio(a, b *report.Case, over, under string) report.Spread {
	var values []float64
	for _, x := range a.Runs {
		for _, y := range b.Runs {
			if x.Number == y.Number && x.Failed == "" && y.Failed == "" && y.Values[under] > 0 {
				values = append(values, x.Values[over]/y.Values[under])
			}
		}
	}
	return report.Of(values...)
}
