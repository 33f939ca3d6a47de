package spoolbench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// How many jobs a worker of each stage takes at once, and how many messages are on their way at most. A delivery waits for its
// permit, which is a commit, so there are many at a time.
const (
	readers   = 64
	deliverer = 512
	window    = 4096
)

// stages are the hops, with the service that each worker connects as.
var stages = []struct {
	stage   spoolv1.Stage
	service string
	jobs    int
}{
	{spoolv1.Stage_STAGE_PARSER, process.Parser, readers},
	{spoolv1.Stage_STAGE_FILTER, process.Filter, readers},
	{spoolv1.Stage_STAGE_DELIVER, process.Deliver, deliverer},
}

// workers are a worker of each stage.
type workers struct {
	group  *errgroup.Group
	cancel context.CancelFunc
}

// work runs a worker of each stage. each is called for every job and may be nil; then the job is answered without more ado, a
// delivery after its permit, as one that sends something needs it.
func (r *rig) work(ctx context.Context, each worker.Handler) (*workers, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &workers{group: new(errgroup.Group), cancel: cancel}
	for _, s := range stages {
		conn, err := r.Dial(s.service)
		if err != nil {
			cancel()
			_ = w.group.Wait() // the first error says more
			return nil, err
		}
		w.group.Go(func() error {
			defer conn.Close() //nolint:errcheck // nothing is under way then
			return worker.Run(ctx, conn, s.stage, s.jobs, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
				if each != nil {
					if result, err := each(ctx, job); result != nil || err != nil {
						return result, err
					}
				}
				return answer(ctx, job)
			})
		})
	}
	return w, nil
}

// stop lets the workers end what they hold.
func (w *workers) stop() error {
	w.cancel()
	return w.group.Wait()
}

// answer does the least that a worker of a job's stage does.
func answer(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
	switch work := job.GetWork().(type) {
	case *spoolv1.Job_Parse:
		return &spoolv1.Result{Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{Parsed: &mailv1.ParsedMessage{}}}}, nil
	case *spoolv1.Job_Filter:
		verdict := &mailv1.Verdict{}
		for range job.GetEnvelope().GetRecipients() {
			verdict.Recipients = append(verdict.Recipients, &mailv1.RecipientVerdict{Action: mailv1.Action_ACTION_ACCEPT})
		}
		return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}, nil
	case *spoolv1.Job_Deliver:
		if err := job.Permit(ctx); err != nil {
			return nil, err
		}
		attempt := &mailv1.Attempt{Destination: work.Deliver.GetDestination(), Number: work.Deliver.GetAttempt()}
		for _, i := range work.Deliver.GetRecipients() {
			attempt.Results = append(attempt.Results, &mailv1.RecipientResult{
				Recipient: i, Status: mailv1.ResultStatus_RESULT_STATUS_DELIVERED,
				Reply: &mailv1.Reply{Code: 250, EnhancedCode: "2.0.0", Text: "Ok"},
			})
		}
		return &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{Attempt: attempt}}}, nil
	}
	return nil, fmt.Errorf("a job of a kind that does not belong here: %T", job.GetWork())
}

// livesFor runs whole lives for a time: as many callers as in submitFor, and a worker of each stage. It returns once every
// message has its outcome, and tells how many there were and how long it took from the first submission to the last outcome.
func (r *rig) livesFor(ctx context.Context, d time.Duration) (n int64, took time.Duration, err error) {
	before, err := count(ctx, r.Database(), outcomes)
	if err != nil {
		return 0, 0, err
	}
	room := make(chan struct{}, window)
	var delivered atomic.Int64
	w, err := r.work(ctx, func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
		if job.GetDeliver() != nil {
			delivered.Add(1)
			select {
			case <-room:
			default: // one of before
			}
		}
		return nil, nil
	})
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	got, err := r.submitFor(ctx, r.o.Outstanding, 0, d, func(ctx context.Context) error {
		select {
		case room <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err == nil {
		err = reached(ctx, r.Database(), outcomes, before+got.count)
		took = time.Since(begun)
	}
	if stopErr := w.stop(); err == nil {
		err = stopErr
	}
	return got.count, took, err
}

// livesInto measures whole lives under a key.
func (r *rig) livesInto(ctx context.Context, run *report.Run, key string) error {
	if _, _, err := r.livesFor(ctx, r.o.warm()); err != nil {
		return err
	}
	var n int64
	var took time.Duration
	usage, err := r.watched(run, func() (err error) {
		n, took, err = r.livesFor(ctx, r.o.Measure)
		return err
	})
	if err != nil {
		return err
	}
	run.Set(key, float64(n)/took.Seconds())
	cost(run, key, usage, n)
	return nil
}

// wholeLife measures lives as they are by default, the verdict before the acceptance.
func (o *Options) wholeLife(ctx context.Context, place bench.Place, run *report.Run) error {
	return o.with(ctx, place, nil, func(r *rig) error { return r.livesInto(ctx, run, "life") })
}

// What is counted to see that nothing is under way any more.
const outcomes = "SELECT count(*) FROM outcome"

func count(ctx context.Context, url, query string) (n int64, err error) {
	err = one(ctx, url, &n, query)
	return n, err
}

// one asks a database for one value.
func one(ctx context.Context, url string, value any, query string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only reads
	return conn.QueryRow(ctx, query, args...).Scan(value)
}

// reached waits until a query counts so many. The longer the way, the longer the pauses, so that asking costs nothing.
func reached(ctx context.Context, url, query string, want int64) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only reads
	for {
		var n int64
		if err := conn.QueryRow(ctx, query).Scan(&n); err != nil {
			return fmt.Errorf("waiting for %d: %w", want, err)
		}
		if n >= want {
			return nil
		}
		pause := min(max(time.Duration(want-n)*50*time.Microsecond, 5*time.Millisecond), 200*time.Millisecond)
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d, there are %d: %w", want, n, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// inFlight configures how many transactions may run at a time.
func inFlight(n int) func(*services.Config) {
	return func(cfg *services.Config) { cfg.Spool.CommitsInFlight = n }
}
