package report

import (
	"context"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// Lost is how many messages were accepted and did not arrive, for runs that have both ends, and how many arrived twice or
// broken. What is missing in a run that failed, as for want of time, nobody knows.
func Lost(r *Run) (missing, twice, broken int64) {
	for _, s := range r.Sinks {
		twice += s.Duplicates
		for _, n := range s.Faults {
			broken += n
		}
	}
	if r.Failed != "" || len(r.Gens) == 0 || len(r.Sinks) == 0 {
		return 0, twice, broken
	}
	for _, g := range r.Gens {
		missing += g.Recipients
	}
	missing -= distinct(r)
	if r.Hidden != nil {
		missing += *r.Hidden
	}
	return max(0, missing), twice, broken
}

// Unproven is how many messages make the count of missing ones uncertain: the sender was not told that they were taken, and
// nobody looked whether they arrived. Each that did hides a lost one.
func Unproven(r *Run) (n int64) {
	if r.Hidden != nil || len(r.Sinks) == 0 {
		return 0
	}
	for _, g := range r.Gens {
		n += g.Doubts
	}
	return n
}

// Await waits until a sink has everything that a generator's result says was accepted, besides what had arrived before. It
// returns how many more arrived of which the sender does not know that they were accepted, for [Run.Hidden]; nil where they
// were too many to be named.
func Await(ctx context.Context, s *sink.Sink, res *gen.Result, before int64) (hidden *int64, err error) {
	for known := int64(-1); err == nil; {
		n := s.Arrived(res.Doubtful)
		if res.Doubts <= int64(len(res.Doubtful)) {
			hidden = &n
		}
		if n == known {
			break
		}
		known = n
		err = s.Wait(ctx, before+res.Recipients+n)
	}
	if hidden != nil {
		*hidden = s.Arrived(res.Doubtful)
	}
	return hidden, err
}
