package spoolbench

import (
	"context"
	"fmt"
	"sync"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// deferred measures what a full queue costs: rates with an empty one, then with all those messages in it, of the same spool.
func (o *Options) deferred(ctx context.Context, place bench.Place, run *report.Run) error {
	return o.with(ctx, place, nil, func(r *rig) error {
		if err := r.both(ctx, run, "empty"); err != nil {
			return err
		}
		if err := r.Halt(ctx); err != nil {
			return err
		}
		if err := r.fill(ctx, run); err != nil {
			return err
		}
		if err := r.restart(ctx, run); err != nil {
			return err
		}
		if err := r.both(ctx, run, "full"); err != nil {
			return err
		}
		run.Set("pss_load", max(run.Values["full_life_pss"], run.Values["full_submit_pss"]))
		compare(run, "full", "empty")
		begun := time.Now()
		err := r.Halt(ctx)
		run.Set("stop", time.Since(begun).Seconds())
		return err
	})
}

// both measures whole lives and submission under keys that begin with a word.
func (r *rig) both(ctx context.Context, run *report.Run, word string) error {
	if err := r.livesInto(ctx, run, word+"_life"); err != nil {
		return err
	}
	return r.submitInto(ctx, run, word+"_submit")
}

// compare notes how both rates compare with those before, in the same round.
func compare(run *report.Run, now, before string) {
	for _, what := range []string{"_life", "_submit"} {
		run.Set(now+"_of_"+before+what, run.Values[now+what]/run.Values[before+what])
	}
}

// fill fills the queue while no spool runs, and measures claims from it.
func (r *rig) fill(ctx context.Context, run *report.Run) error {
	q, err := openQueue(ctx, r.Database())
	if err != nil {
		return err
	}
	defer q.close(ctx)
	if err := q.empty(ctx); err != nil {
		return err
	}
	if err := q.fill(ctx, r.o.Deferred); err != nil {
		return err
	}
	claims, err := q.claims(ctx, r.Database(), min(200, r.o.Deferred/20))
	if err != nil {
		return err
	}
	setMS(run, "claim", claims.P50, claims.P99) // what those took is due at once, so there is work when the spool starts
	return nil
}

// restart measures a start with a full queue: until the first job is at its worker, and how long messages that become due then
// take until they are at theirs. The memory is that of a spool which has only just started.
func (r *rig) restart(ctx context.Context, run *report.Run) error {
	begun := time.Now()
	if err := r.Resume(ctx); err != nil {
		return err
	}
	arrived := &arrivals{at: map[string]time.Time{}, first: make(chan struct{})}
	w, err := r.work(ctx, func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
		arrived.note(job.GetMessageId())
		return nil, nil
	})
	if err != nil {
		return err
	}
	usage, err := r.watched(run, func() error {
		select {
		case <-arrived.first:
			run.Set("restart", time.Since(begun).Seconds())
		case <-ctx.Done():
			return fmt.Errorf("no job after the restart: %w", ctx.Err())
		}
		return r.lateness(ctx, run, arrived)
	})
	run.Set("pss_waiting", mib(usage.Groups[spoolGroup].PeakPSS))
	if stopErr := w.stop(); err == nil {
		err = stopErr
	}
	return err
}

// lateness makes messages due one after another, and measures how late each was at its worker.
func (r *rig) lateness(ctx context.Context, run *report.Run, arrived *arrivals) error {
	q, err := openQueue(ctx, r.Database())
	if err != nil {
		return err
	}
	defer q.close(ctx)
	n := min(1000, r.o.Deferred/10)
	before, err := count(ctx, r.Database(), outcomes)
	if err != nil {
		return err
	}
	due, err := q.due(ctx, n, 500*time.Millisecond, r.o.Measure/time.Duration(n))
	if err != nil {
		return err
	}
	if err := reached(ctx, r.Database(), outcomes, before+int64(n)); err != nil {
		return err
	}
	late, err := arrived.late(ctx, due)
	setMS(run, "late", late.P50, late.P99)
	return err
}

// arrivals notes when a message first came to a worker.
type arrivals struct {
	mu    sync.Mutex
	at    map[string]time.Time
	first chan struct{} // closed with the first
}

func (a *arrivals) note(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.at) == 0 {
		close(a.first)
	}
	if _, again := a.at[id]; !again {
		a.at[id] = time.Now()
	}
}

// late waits until all have come, and tells how late.
func (a *arrivals) late(ctx context.Context, due map[string]time.Time) (latency.Summary, error) {
	var took latency.Recorder
	for id, want := range due {
		for {
			a.mu.Lock()
			at, ok := a.at[id]
			a.mu.Unlock()
			if ok {
				took.Record(0, at.Sub(want))
				break
			}
			if sleep(ctx, time.Millisecond); ctx.Err() != nil {
				return latency.Summary{}, fmt.Errorf("%s did not come: %w", id, ctx.Err())
			}
		}
	}
	return took.Summary(), nil
}
