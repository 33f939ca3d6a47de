package bench

import (
	"context"

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
	o.versions = map[string]string{} // floors note theirs, too
	var entries []entry
	for _, d := range []dimensions{
		{size: 4 << 10, perSession: 1, sessions: 50},
		{size: 4 << 10, perSession: 10, sessions: 50},
		{size: 64 << 10, perSession: 10, sessions: 50},
		{size: 1 << 20, perSession: 10, sessions: 50},
	} {
		for _, s := range systems {
			entries = append(entries, d.entry("accepted and kept", d.name(), s.name, s.start, false, o.Full))
		}
		for _, s := range systems {
			if !s.floor {
				entries = append(entries, d.entry("the whole way to the sink", d.name(), s.name, s.start, true, o.Full))
			}
		}
	}
	entries = append(entries, floors(o)...)
	r, err := run(ctx, o, entries)
	if r != nil {
		r.Compare("rohrpost")
	}
	return r, err
}
