package report

import (
	"fmt"
	"slices"
	"strings"
)

// faults tell what was wrong with contents; empty where nothing was.
func faults(r *Run) string {
	all := map[string]int64{}
	for _, s := range r.Sinks {
		for fault, n := range s.Faults {
			all[fault] += n
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(": %v", all)
}

// marks are short signs for what is to be known about a case, and the notes that explain them.
func (c *Case) marks() (string, []string) {
	var marks, notes []string
	note := func(mark, format string, args ...any) {
		if !slices.Contains(marks, mark) {
			marks = append(marks, mark)
		}
		notes = append(notes, c.Name+" "+c.System+": "+fmt.Sprintf(format, args...))
	}
	for _, reason := range c.Contaminated() {
		note("CONTAMINATED", "%s", reason)
	}
	for i := range c.Runs {
		for _, m := range c.Runs[i].marks() {
			note(m.sign, "run %d: %s", c.Runs[i].Number, m.text)
		}
	}
	return strings.Join(marks, " "), notes
}

type mark struct{ sign, text string }

// enough is the share of the sessions that must have been open at once: one that is between two connections is not.
const enough = 0.9

// marks are what is to be known about a run.
func (r *Run) marks() (all []mark) {
	note := func(sign, format string, args ...any) { all = append(all, mark{sign, fmt.Sprintf(format, args...)}) }
	if r.Failed != "" {
		note("FAILED", "%s", r.Failed)
	}
	if r.Failed == "" && Rate(r) == 0 {
		note("FAILED", "nothing was accepted while it was measured")
	}
	for _, g := range r.Gens {
		if len(g.Errors) > 0 {
			note("errors", "%v; of %d messages %d were refused, %d without an answer, %d not sent", g.Errors, g.Messages, g.Refused, g.Unknown, g.Failed)
		}
		if g.Offered == 0 && float64(g.Peak) < enough*float64(g.Concurrency) {
			note("fewer", "at most %d of %d sessions were open at once", g.Peak, g.Concurrency)
		}
	}
	if short(r) && brief(r) {
		note("brief", "fewer sessions ended than were open at once: how many there are in a second, and what one takes, is not known")
	}
	if missing, twice, broken := Lost(r); missing+twice+broken > 0 {
		note("LOSS?", "%d accepted and not arrived, %d arrived again, %d not as sent%s", missing, twice, broken, faults(r))
	}
	if n := Unproven(r); n > 0 {
		note("unproven", "of %d messages the sender was not told that they were taken: each that arrived would hide one that was lost", n)
	}
	// Single retransmissions belong to a busy loopback: its timers come late.
	if u := r.Usage; u != nil && (u.Overflows+u.Drops > 0 || 100*u.Retransmits > u.Segments) {
		note("net", "%d listen overflows, %d listen drops, %d retransmits of %d segments", u.Overflows, u.Drops, u.Retransmits, u.Segments)
	}
	return all
}
