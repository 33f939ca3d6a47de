package spoolbench

import (
	"fmt"
	"io"
	"strings"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

// sections are the tables in the order of the document.
func (o *Options) sections() []report.Section {
	river := &report.Figure{In: caseRiver, Key: "river"}
	all := []report.Section{
		{Title: fmt.Sprintf("Submit, %d outstanding", o.Outstanding), Case: caseSubmit, Figures: append([]report.Figure{
			{Name: "accepted a second", Key: "submit", Format: "%.0f"},
			{Name: "messages in a transaction", Key: "submit_batch", Format: "%.1f"},
			{Name: "a plain loop of COPY with as many in a transaction, rows a second", Key: "copy", Format: "%.0f"},
			{Name: "accepted ÷ COPY", Key: "submit_of_copy", Format: "%.2f"},
			{Name: "until the answer, p50, ms", Key: "submit_latency_p50", Format: "%.1f"},
			{Name: "until the answer, p99, ms", Key: "submit_latency_p99", Format: "%.1f"},
			{Name: "a lone submitter, p50, ms", Key: "lone_p50", Format: "%.2f"},
			{Name: "a lone submitter, p99, ms", Key: "lone_p99", Format: "%.2f"},
			{Name: "commit of a single row, p50, ms", Key: "commit_p50", Format: "%.2f"},
			{Name: "commit of a single row, p99, ms", Key: "commit_p99", Format: "%.2f"},
			{Name: "lone submitter ÷ commit, p50", Key: "lone_of_commit_p50", Format: "%.2f"},
			{Name: "lone submitter ÷ commit, p99", Key: "lone_of_commit_p99", Format: "%.2f"},
		}, costs("submit")...)},
		{Title: "Whole life: submit, three hops, outcome", Case: caseLife, Figures: append([]report.Figure{
			{Name: "messages a second", Key: "life", Format: "%.0f"},
		}, costs("life")...)},
		{Title: "River on the same life", Case: caseRiver, Figures: append(append([]report.Figure{
			{Name: "by transaction, messages a second", Key: riverByTransaction, Format: "%.0f"},
			{Name: "by batch, messages a second", Key: riverByBatch, Format: "%.0f"},
			{Name: "the spool ÷ River's faster way", In: caseLife, Key: "life", Of: river, Format: "%.1f"},
		}, costs(riverByTransaction)...), costs(riverByBatch)...)},
		{Title: "A hop", Case: caseHop, Figures: hopFigures()},
		{Title: "Commits in flight", Figures: commitFigures()},
		{Title: fmt.Sprintf("%d messages deferred", o.Deferred), Case: caseDeferred, Figures: append(compared("empty", "full"),
			report.Figure{Name: "a claim of 5 that are due, p50, ms", Key: "claim_p50", Format: "%.1f"},
			report.Figure{Name: "a claim of 5 that are due, p99, ms", Key: "claim_p99", Format: "%.1f"},
			report.Figure{Name: "from due to the worker, p50, ms", Key: "late_p50", Format: "%.0f"},
			report.Figure{Name: "from due to the worker, p99, ms", Key: "late_p99", Format: "%.0f"},
			report.Figure{Name: "restart to first job, s", Key: "restart", Format: "%.2f"},
			report.Figure{Name: "stop, what was on its way handed over, s", Key: "stop", Format: "%.2f"},
			report.Figure{Name: "spool's memory after the restart, PSS, MiB", Key: "pss_waiting", Format: "%.0f"},
			report.Figure{Name: "spool's memory under load, PSS, MiB", Key: "pss_load", Format: "%.0f"},
		)},
		{Title: "A long transaction beside it", Case: caseLong, Figures: append([]report.Figure{
			{Name: "its age, s", Key: "age", Format: "%.0f"},
		}, compared("alone", "beside")...)},
		{Title: fmt.Sprintf("%d messages of %d MB at once, each read at each hop", o.Large, o.LargeSize/1_000_000), Case: caseLarge, Figures: []report.Figure{
			{Name: "accepted, MB a second", Key: "in", Format: "%.0f"},
			{Name: "the whole life, MB a second", Key: "whole", Format: "%.0f"},
			{Name: "spool's memory, PSS, MiB", Key: "pss", Format: "%.0f"},
			{Name: "PostgreSQL's memory, PSS, MiB", Key: "pss_postgres", Format: "%.0f"},
		}},
	}
	return all
}

// costs are the rows of what cost notes.
func costs(key string) []report.Figure {
	what := ""
	if key == riverByTransaction || key == riverByBatch {
		what = " (" + strings.TrimPrefix(key, "river_") + ")"
	}
	rows := []report.Figure{
		{Name: "CPU, µs a message" + what + ": spool", Key: key + "_cpu_" + spoolGroup, Format: "%.0f"},
		{Name: "CPU, µs a message" + what + ": PostgreSQL", Key: key + "_cpu_" + postgresGroup, Format: "%.0f"},
		{Name: "CPU, µs a message" + what + ": submitters and workers", Key: key + "_cpu_" + loadGroup, Format: "%.0f"},
	}
	if what != "" {
		return rows[1:] // River has no process of its own
	}
	return rows
}

func hopFigures() []report.Figure {
	var rows []report.Figure
	for _, d := range jobTimes {
		key := "hop_" + d.String()
		rows = append(rows,
			report.Figure{Name: fmt.Sprintf("beside a job of %s, µs of a core", d), Key: key + "_cost", Format: "%.1f"},
			report.Figure{Name: fmt.Sprintf("beside a job of %s, %% of the job", d), Key: key + "_share", Format: "%.1f"})
	}
	return rows
}

func commitFigures() []report.Figure {
	var rows []report.Figure
	for _, what := range []struct{ name, key, format string }{
		{"accepted a second", "submit", "%.0f"}, {"messages in a transaction", "submit_batch", "%.1f"}, {"whole lives a second", "life", "%.0f"},
	} {
		for _, n := range []string{"1", "2", "3"} {
			rows = append(rows, report.Figure{Name: n + " in flight: " + what.name, In: caseCommits + n, Key: what.key, Format: what.format})
		}
	}
	return rows
}

// compared are the rows of what compare notes.
func compared(before, now string) []report.Figure {
	return []report.Figure{
		{Name: before + ": accepted a second", Key: before + "_submit", Format: "%.0f"},
		{Name: now + ": accepted a second", Key: now + "_submit", Format: "%.0f"},
		{Name: now + " ÷ " + before, Key: now + "_of_" + before + "_submit", Format: "%.2f"},
		{Name: before + ": whole lives a second", Key: before + "_life", Format: "%.0f"},
		{Name: now + ": whole lives a second", Key: now + "_life", Format: "%.0f"},
		{Name: now + " ÷ " + before, Key: now + "_of_" + before + "_life", Format: "%.2f"},
	}
}

// Markdown writes the tables for docs/performance.md.
func (o *Options) Markdown(w io.Writer, r *report.Report) error {
	return r.Sheet(w, o.wire(), o.sections())
}

// wire says how the processes talk.
func (o *Options) wire() string {
	if o.TLS {
		return "gRPC with mutual TLS over loopback, as between separate services"
	}
	return "gRPC in clear text over loopback, as within `rohrpost up`"
}
