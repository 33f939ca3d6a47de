// Package spoolbench measures the spool: what it accepts a second, what a message's whole life costs, what a hop costs, what a
// full queue, a long transaction and large mail do to it, and how River fares on the same life. The spool is the program as
// built, in a process of its own on a PostgreSQL with fsync on; who submits and who works is this process, over gRPC with the
// clients that gateways and workers use. See docs/performance.md.
package spoolbench

import (
	"context"
	"errors"
	"time"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// Options say how it is measured.
type Options struct {
	bench.Options
	// TLS is mutual TLS between all processes, as separate services have it. Else gRPC goes in clear text over loopback.
	TLS bool
	// Measure is how long a rate is measured, after a warm-up of a quarter of that.
	Measure time.Duration
	// Outstanding is how many messages are submitted at once.
	Outstanding int
	// Deferred is how many messages wait in the full queue.
	Deferred int
	// TransactionAge is how old the long transaction is at least when something is measured beside it; 0 for as old as the
	// run lets it become.
	TransactionAge time.Duration
	// Large messages are submitted at once, of so many octets.
	Large, LargeSize int
}

// DefaultOptions are those of make bench-spool.
func DefaultOptions() Options {
	return Options{Measure: 3 * time.Second, Outstanding: 256, Deferred: 300_000, Large: 20, LargeSize: 50_000_000}
}

func (o *Options) warm() time.Duration { return o.Measure / 4 }

// Run measures all cases in rounds.
func Run(ctx context.Context, o Options) (_ *report.Report, err error) {
	long := &longTransaction{o: &o}
	scenarios := o.scenarios(long)
	if last := scenarios[len(scenarios)-1]; o.Only == nil || o.Only.MatchString(last.Title()) {
		// It is opened first, so that it is old by the time it is measured.
		if err := long.open(ctx); err != nil {
			return nil, errors.Join(err, long.close(context.WithoutCancel(ctx)))
		}
	}
	defer func() { err = errors.Join(err, long.close(context.WithoutCancel(ctx))) }()
	return bench.Scenarios(ctx, o.Options, scenarios)
}

// The groups and names of cases.
const (
	group        = "spool"
	caseSubmit   = "submit"
	caseLife     = "whole life"
	caseHop      = "hop"
	caseRiver    = "river"
	caseCommits  = "commits in flight: "
	caseDeferred = "full queue"
	caseLarge    = "large messages"
	caseLong     = "long transaction"
)

// scenarios lists the cases in the order of a round: what is compared stands close together. The long transaction is last.
func (o *Options) scenarios(long *longTransaction) []bench.Scenario {
	start := 3 * time.Second // of database and spool, and their end
	rate := o.warm() + o.Measure + time.Second
	fill := time.Duration(o.Deferred) * 60 * time.Microsecond
	scenarios := []bench.Scenario{
		{Name: caseSubmit, Takes: start + 3*rate, Measure: o.submit},
		{Name: caseLife, Takes: start + rate, Measure: o.wholeLife},
		{Name: caseRiver, Takes: start + 2*rate, Measure: o.river},
		{Name: caseHop, Takes: start + 3*rate, Measure: o.hops},
	}
	for _, n := range []int{1, 2, 3} {
		scenarios = append(scenarios, bench.Scenario{Name: caseCommits + string(rune('0'+n)), Takes: start + 2*rate, Measure: o.commits(n)})
	}
	scenarios = append(scenarios,
		bench.Scenario{Name: caseLarge, Takes: start + time.Duration(o.Large*o.LargeSize/40)*time.Microsecond, Measure: o.large},
		bench.Scenario{Name: caseDeferred, Takes: 2*start + 5*rate + fill, Measure: o.deferred},
		bench.Scenario{Name: caseLong, Takes: start + 7*rate + o.TransactionAge, Measure: long.measure},
	)
	for i := range scenarios {
		scenarios[i].Group = group
	}
	return scenarios
}
