package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// system is something that is measured in turn with others.
type system struct {
	name  string
	start peers.Start
	floor bool // it only takes mail, so it can't be measured the whole way
}

// Peers measures this pipeline, other servers, and the machine's floors in turn, and tells ratios.
func Peers(ctx context.Context, o Options) (*report.Report, error) {
	systems := []system{
		{name: "rohrpost", start: peers.Rohrpost(o.Rohrpost, o.Rohrload, stack.Options{})},
		{name: "postfix", start: peers.Postfix},
		{name: "floor: go-smtp, discarding", start: peers.Child(o.Rohrload, "floor"), floor: true},
		{name: "floor: sink", start: peers.Child(o.Rohrload, "sink", "--quiet", "--smtp"), floor: true},
	}
	var entries []entry
	for _, d := range []dimensions{
		{size: 4 << 10, perSession: 1, sessions: 50},
		{size: 4 << 10, perSession: 10, sessions: 50},
		{size: 64 << 10, perSession: 10, sessions: 50},
		{size: 1 << 20, perSession: 10, sessions: 50},
	} {
		for _, s := range systems {
			entries = append(entries, peerEntry("accepted and kept", d, s, false, o.Full))
		}
		for _, s := range systems {
			if !s.floor {
				entries = append(entries, peerEntry("the whole way to the sink", d, s, true, o.Full))
			}
		}
	}
	entries = append(entries, floors(o)...)
	r, err := run(ctx, o, entries)
	if r != nil {
		r.Environment.Others["Postfix"] = peers.PostfixVersion(context.WithoutCancel(ctx))
	}
	return r, err
}

func peerEntry(group string, d dimensions, s system, next, full bool) entry {
	e := entry{group: group, name: d.name(), system: s.name, start: s.start, next: next, load: d.load(full)}
	e.takes = 3*time.Second + e.load.warmFor + e.load.duration
	if next {
		e.load = d.wholeLoad(full)
		e.takes = e.load.wholeTakes(d)
	}
	return e
}

// Ratios writes how this pipeline compares with each other system, case by case: round by round, so that the machine's drift
// cancels out.
func Ratios(w io.Writer, r *report.Report) {
	for i := range r.Cases {
		ours := &r.Cases[i]
		if ours.System != "rohrpost" {
			continue
		}
		for j := range r.Cases {
			other := &r.Cases[j]
			if other.Group != ours.Group || other.Name != ours.Name || other.System == ours.System {
				continue
			}
			figure := report.Rate
			if ours.Spread(report.WholeRate).Median > 0 {
				figure = report.WholeRate
			}
			if s := report.Ratio(ours, other, figure); s.Median > 0 {
				_, _ = fmt.Fprintf(w, "%s, %s: rohrpost ÷ %s = %.2f [%.2f–%.2f]\n", ours.Group, ours.Name, other.System, s.Median, s.Min, s.Max)
			}
		}
	}
}
