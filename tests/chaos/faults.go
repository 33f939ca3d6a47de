//go:build linux

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// breakThings makes the faults of the schedule while traffic goes on, until all of them are healed.
func (r *run) breakThings(ctx context.Context) {
	r.say("seed %d: %d faults within %s", r.opts.Seed, len(r.report.Faults), r.opts.Duration)
	start := time.Now()
	r.report.Start = start
	telling, stop := context.WithDeadline(ctx, start.Add(r.opts.Duration))
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.traffic.flow(ctx, r.opts.Duration, r.opts.Sessions); err != nil {
			r.report.broken("sending: %v", err)
		}
	})
	wg.Go(func() { r.progress(telling) })
	for i := range r.report.Faults {
		wg.Go(func() { r.fault(ctx, start, r.report.Faults[i]) })
	}
	wg.Wait()
}

// fault makes one fault at its time and heals it. What can't be made, such as ending connections of a database that is
// starting, is told and left out.
func (r *run) fault(ctx context.Context, start time.Time, f schedule.Fault) {
	pause(ctx, time.Until(start.Add(f.At)))
	if ctx.Err() != nil {
		return
	}
	from := time.Since(start)
	undo, err := r.cluster.Do(ctx, f)
	made := time.Since(start)
	if err != nil {
		r.report.happened(f, "%.1fs: %v", from.Seconds(), err)
	}
	if undo == nil {
		return
	}
	pause(ctx, time.Until(start.Add(f.End())))
	if undoErr := undo(context.WithoutCancel(ctx)); undoErr != nil {
		r.report.broken("undoing %s: %v", f, undoErr)
	}
	if err == nil {
		r.report.happened(f, "%.1fs to %.1fs, in force from %.1fs", from.Seconds(), time.Since(start).Seconds(), made.Seconds())
	}
}

// progress tells now and then how many mails there were.
func (r *run) progress(ctx context.Context) {
	for pause(ctx, 15*time.Second); ctx.Err() == nil; pause(ctx, 15*time.Second) {
		r.say("%d mails accepted, %d arrived", r.traffic.accepted.Load(), r.sink.Stats().Distinct)
	}
}
