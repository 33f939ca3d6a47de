//go:build linux

package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// Report is what a run found.
type Report struct {
	Seed     uint64
	Start    time.Time // of the traffic
	Faults   []schedule.Fault
	Upkeep   []string // ends of processes that no fault asked for
	Counts   map[string]int
	Findings []judge.Finding
	Messages map[string]*judge.Message // by id
	Logs     map[string][]string       // what the services logged about the messages that findings name, by id

	mu     sync.Mutex
	actual []string // what became of each fault
}

// happened notes how a fault went.
func (r *Report) happened(f schedule.Fault, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actual = append(r.actual, f.String()+": "+fmt.Sprintf(format, args...))
}

// broken adds a finding about no message.
func (r *Report) broken(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Findings = append(r.Findings, judge.Finding{Rule: judge.Machine, Text: fmt.Sprintf(format, args...)})
}

// OK tells whether nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Breaks tells whether a message was found that breaks a rule.
func (r *Report) Breaks(rule string) bool {
	return slices.ContainsFunc(r.Findings, func(f judge.Finding) bool { return f.Rule == rule && f.Message != "" })
}

// guilty lists the messages that findings name, up to a number that people read.
func (r *Report) guilty() []string {
	var ids []string
	for _, f := range r.Findings {
		if f.Message != "" && !slices.Contains(ids, f.Message) && len(ids) < 10 {
			ids = append(ids, f.Message)
		}
	}
	return ids
}

// listed is how many findings a report lists.
const listed = 50

// Write writes the report for people. What was found comes last.
func (r *Report) Write(w io.Writer) {
	var b strings.Builder
	if !r.OK() {
		r.writeFailure(&b)
	}
	r.writeAside(&b)
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		counts = append(counts, fmt.Sprintf("%s %d", name, r.Counts[name]))
	}
	fmt.Fprintf(&b, "\nseed %d, %d faults: %s\n", r.Seed, len(r.Faults), strings.Join(counts, ", "))
	if r.OK() {
		b.WriteString("every promise was kept\n")
	} else {
		fmt.Fprintf(&b, "%d FAULTS FOUND; to repeat: make chaos SEED=%d\n", len(r.Findings), r.Seed)
	}
	_, _ = io.WriteString(w, b.String())
}

// writeAside shows what was quarantined: it is no fault, but somebody would have to look at it.
func (r *Report) writeAside(b *strings.Builder) {
	for _, id := range slices.Sorted(maps.Keys(r.Messages)) {
		if m := r.Messages[id]; m.Count("quarantined") > 0 {
			fmt.Fprintf(b, "\nput aside: %s", m)
		}
	}
}

// writeFailure writes what helps to find out why.
func (r *Report) writeFailure(b *strings.Builder) {
	fmt.Fprintf(b, "\nthe schedule, from %s:\n", r.Start.UTC().Format("15:04:05.000"))
	for _, f := range r.Faults {
		fmt.Fprintf(b, "  %s\n", f)
	}
	b.WriteString("\nwhat happened (times in seconds from the start):\n")
	for _, line := range r.actual {
		fmt.Fprintf(b, "  %s\n", line)
	}
	for _, line := range r.Upkeep {
		fmt.Fprintf(b, "  %s\n", line)
	}
	b.WriteString("\nfound:\n")
	for _, f := range r.Findings[:min(listed, len(r.Findings))] {
		fmt.Fprintf(b, "  %s\n", f)
	}
	if more := len(r.Findings) - listed; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	for _, id := range r.guilty() {
		if m := r.Messages[id]; m != nil {
			fmt.Fprintf(b, "\n%s", m)
		} else {
			fmt.Fprintf(b, "\nmessage %s is not in the database\n", id)
		}
		for _, line := range r.Logs[id] {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
}

// count counts what clients were told and what became of it.
func (r *Report) count(e *judge.Evidence) {
	r.Counts = map[string]int{"messages": len(e.Messages)}
	arrived := map[string]bool{} // by load id
	for _, a := range e.Arrivals {
		switch {
		case a.Report:
			r.Counts["notifications"]++
		case a.Accepted():
			r.Counts["arrivals"]++
			arrived[a.ID] = true
		}
	}
	for _, entry := range e.Entries {
		r.Counts[string(entry.Outcome)]++
		if arrived[entry.ID] && entry.Outcome != ledger.Accepted {
			r.Counts[string(entry.Outcome)+" and arrived"]++
		}
	}
	for _, m := range e.Messages {
		for _, event := range []string{"unknown", "adopted", "worker_lost", "not_attempted", "withdrawn", "quarantined"} {
			r.Counts["journal "+event] += m.Count(event)
		}
	}
}
