package spoolbench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// jobTimes are how long the jobs take that a hop is compared with.
var jobTimes = []time.Duration{100 * time.Microsecond, 400 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}

// hops measures what a hop costs: jobs that use the CPU for a time, on as many cores as there are, in a plain loop and as parse
// jobs of a spool that has a backlog of them. What the second takes longer for each is the hop: the job on its way to the worker
// with its content, the result on its way back, and what the spool does with it.
func (o *Options) hops(ctx context.Context, place bench.Place, run *report.Run) error {
	roomy := func(cfg *services.Config) { // the backlog is not to wait in the database
		cfg.Spool.Memory, cfg.Spool.Messages = 2*bytesize.GiB, 1_000_000
	}
	return o.with(ctx, place, roomy, func(r *rig) error {
		for _, d := range jobTimes {
			if err := r.hop(ctx, run, d); err != nil {
				return fmt.Errorf("jobs of %s: %w", d, err)
			}
		}
		return nil
	})
}

// hop compares jobs of one length. The plain loop runs before and after, since the machine's speed drifts.
func (r *rig) hop(ctx context.Context, run *report.Run, d time.Duration) error {
	rounds := calibrate(d)
	measure := max(r.o.Measure/4, min(200*d, r.o.Measure/2))
	before := plain(rounds, measure/2)
	n := int64(before*measure.Seconds()) + 10
	if err := r.backlog(ctx, n+n/4+10); err != nil {
		return err
	}
	var hopping float64
	_, err := r.watched(run, func() (err error) {
		hopping, err = r.parse(ctx, rounds, n/4, n)
		return err
	})
	if err != nil {
		return err
	}
	loop := (before + plain(rounds, measure/2)) / 2
	cores := float64(runtime.GOMAXPROCS(0))
	key := "hop_" + d.String()
	run.Set(key+"_cost", cores*(1/hopping-1/loop)*1e6) // µs of a core that a hop takes
	run.Set(key+"_share", 100*(loop/hopping-1))        // % of the job
	return nil
}

// spin uses the CPU for a fixed amount of work, whoever else wants it meanwhile.
func spin(rounds int) {
	var sum [sha256.Size]byte
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
}

// calibrate finds how many rounds of spin take a time, when nobody else works. The quickest of several tries counts.
func calibrate(d time.Duration) int {
	const tries, rounds = 20, 2000
	best := time.Hour
	for range tries {
		begun := time.Now()
		spin(rounds)
		best = min(best, time.Since(begun))
	}
	return max(1, int(d*rounds/best))
}

// plain tells how many jobs a second all cores do in a loop.
func plain(rounds int, d time.Duration) float64 {
	var n atomic.Int64
	var cores sync.WaitGroup
	begun := time.Now()
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			for time.Since(begun) < d {
				spin(rounds)
				n.Add(1)
			}
		})
	}
	cores.Wait()
	return float64(n.Load()) / time.Since(begun).Seconds()
}

// backlog submits so many messages.
func (r *rig) backlog(ctx context.Context, n int64) error {
	client, done, err := r.gateway(ctx)
	if err != nil {
		return err
	}
	defer done()
	var left atomic.Int64
	left.Store(n)
	group, ctx := errgroup.WithContext(ctx)
	for range r.o.Outstanding {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				sub, err := message()
				if err != nil {
					return err
				}
				if _, err := client.Submit(ctx, sub); err != nil {
					return fmt.Errorf("submitting: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// parse tells how many parse jobs a second a worker does that has a job for each core: of n, after some to warm up.
func (r *rig) parse(ctx context.Context, rounds int, warm, n int64) (float64, error) {
	conn, err := r.Dial(process.Parser)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way then
	var mu sync.Mutex
	var begun, ended time.Time
	var done int64
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = worker.Run(ctx, conn, spoolv1.Stage_STAGE_PARSER, runtime.GOMAXPROCS(0), func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		spin(rounds)
		mu.Lock()
		defer mu.Unlock()
		switch done++; done {
		case warm + 1:
			begun = time.Now()
		case warm + 1 + n:
			ended = time.Now()
			cancel()
		}
		return answer(ctx, job)
	})
	if err == nil && ended.IsZero() {
		err = errShort("jobs:", done)
	}
	return float64(n) / ended.Sub(begun).Seconds(), err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
