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

	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// Report is what a run found.
type Report struct {
	Seed     uint64
	Duration time.Duration // of traffic and faults
	Repeat   string        // the command that makes the same run again
	Start    time.Time     // of the traffic
	End      time.Time     // when the last fault had been undone
	Faults   []schedule.Fault
	Upkeep   []cluster.Ending // ends of processes that no fault asked for
	Counts   map[string]int
	Findings []judge.Finding
	Messages map[string]*judge.Message // by id
	Logs     map[string][]string       // what the services logged about the messages that findings name, by id
	Judged   bool                      // every mail was judged: else the run broke off
	// UnderFaults is how many mails were accepted from Start to End.
	UnderFaults int64

	mu     sync.Mutex
	actual []attempt
}

// attempt is what became of a fault. Times count from the start of the traffic.
type attempt struct {
	schedule.Fault
	From, InForce, Until time.Duration
	Err                  error // why it could not be made
}

func (a attempt) String() string {
	if a.Err != nil {
		return fmt.Sprintf("%s: %.1fs: %v", a.Fault, a.From.Seconds(), a.Err)
	}
	return fmt.Sprintf("%s: %.1fs to %.1fs, in force from %.1fs", a.Fault, a.From.Seconds(), a.Until.Seconds(), a.InForce.Seconds())
}

// happened notes how a fault went.
func (r *Report) happened(a attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actual = append(r.actual, a)
}

// broken adds a finding about no message.
func (r *Report) broken(format string, args ...any) {
	r.find(judge.Finding{Rule: judge.Machine, Text: fmt.Sprintf(format, args...)})
}

func (r *Report) find(f judge.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Findings = append(r.Findings, f)
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

// Write writes the report for people, of a run that broke off too. What was found comes last.
func (r *Report) Write(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	if !r.OK() || !r.Judged {
		r.writeFailure(&b)
	}
	r.writeAside(&b)
	made, missed := r.made()
	for _, a := range missed {
		fmt.Fprintf(&b, "\ncould not be made: %s", a)
	}
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		counts = append(counts, fmt.Sprintf("%s %d", name, r.Counts[name]))
	}
	fmt.Fprintf(&b, "\nseed %d, %s: %d of %d faults made, %d mails accepted meanwhile; %s\n", r.Seed, r.Duration, made, len(r.Faults),
		r.UnderFaults, strings.Join(counts, ", "))
	switch {
	case !r.OK():
		fmt.Fprintf(&b, "%d FAULTS FOUND\n", len(r.Findings))
	case r.Judged:
		b.WriteString("every promise was kept\n")
	default:
		b.WriteString("the run broke off: NOTHING WAS JUDGED\n")
	}
	fmt.Fprintf(&b, "to repeat: %s\n", r.Repeat)
	_, _ = io.WriteString(w, b.String())
}

// made counts the faults that were made, and lists the others that were tried.
func (r *Report) made() (n int, missed []attempt) {
	for _, a := range r.actual {
		if a.Err != nil {
			missed = append(missed, a)
			continue
		}
		n++
	}
	return n, missed
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
	for _, e := range r.Upkeep {
		fmt.Fprintf(b, "  %s %s ended by itself: %s\n", e.At.UTC().Format("15:04:05.000"), e.Node, e.How)
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
