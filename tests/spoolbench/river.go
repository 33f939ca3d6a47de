package spoolbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// How River runs: what was fastest of what was tried. Its workers live in this process, as the spool's do.
const (
	riverWorkers  = 500 // of each queue
	riverCooldown = 5 * time.Millisecond
	riverPoll     = 50 * time.Millisecond
	riverConns    = 16
)

// step is a job of River's: one stage of a message's life. The first has the content. The later ones have the id alone: a worker
// that wants the content would have to read it, which is not counted here.
type step struct {
	Stage   int    `json:"stage"`
	ID      string `json:"id"`
	Content string `json:"content,omitempty"`
}

// Kind implements river.JobArgs.
func (step) Kind() string { return "step" }

var queues = []string{"parser", "filter", "deliver"}

// insertOpts put a step into the queue of its stage.
func (s step) insertOpts() *river.InsertOpts { return &river.InsertOpts{Queue: queues[s.Stage]} }

// next is the step after this one; false where it was the last.
func (s step) next() (step, bool) {
	return step{Stage: s.Stage + 1, ID: s.ID}, s.Stage+1 < len(queues)
}

// river measures the same life with River, in two ways. By transaction: a job's completion and the next job are one transaction,
// as JobCompleteTx offers it. By batch: the next jobs of many workers are inserted together, before River completes their jobs
// in batches of its own; a crash between the two repeats a step, which mail would have to guard against.
func (o *Options) river(ctx context.Context, place bench.Place, run *report.Run) (err error) {
	pg, err := stack.Postgres(ctx, place.Base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop(context.WithoutCancel(ctx))) }()
	r := &rig{Stack: stack.Bare(pg), o: o, pg: pg}
	for _, way := range []string{riverByTransaction, riverByBatch} {
		if err := stack.Recreate(ctx, pg); err != nil {
			return err
		}
		if err := r.riverInto(ctx, run, way); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	run.Set("river", max(run.Values[riverByTransaction], run.Values[riverByBatch]))
	return nil
}

const (
	riverByTransaction = "river_transaction"
	riverByBatch       = "river_batch"
)

// riverRig is River in one way of working.
type riverRig struct {
	way    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	insert *inserter
	done   atomic.Int64
	room   chan struct{}
}

// riverInto measures one way under its key.
func (r *rig) riverInto(ctx context.Context, run *report.Run, way string) (err error) {
	config, err := pgxpool.ParseConfig(r.Database())
	if err != nil {
		return err
	}
	config.MaxConns = riverConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	q := &riverRig{way: way, pool: pool, room: make(chan struct{}, window)}
	if err := q.start(ctx); err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, q.client.StopAndCancel(stop))
		q.insert.close()
	}()
	if _, _, err := q.livesFor(ctx, r, r.o.warm()); err != nil {
		return err
	}
	var n int64
	var took time.Duration
	usage, err := r.watched(run, func() (err error) {
		n, took, err = q.livesFor(ctx, r, r.o.Measure)
		return err
	})
	if err != nil {
		return err
	}
	run.Set(way, float64(n)/took.Seconds())
	cost(run, way, usage, n)
	return nil
}

// start makes River's tables and starts its workers.
func (q *riverRig) start(ctx context.Context) error {
	driver := riverpgxv5.New(q.pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	config := &river.Config{
		Queues: map[string]river.QueueConfig{}, Workers: river.NewWorkers(), Logger: quiet,
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, JobTimeout: -1,
	}
	for _, name := range queues {
		config.Queues[name] = river.QueueConfig{MaxWorkers: riverWorkers}
	}
	river.AddWorker(config.Workers, river.WorkFunc(q.work))
	if q.client, err = river.NewClient(driver, config); err != nil {
		return err
	}
	q.insert = newInserter(ctx, q.client)
	if err := q.client.Start(ctx); err != nil {
		q.insert.close()
		return err
	}
	return nil
}

// work ends a step and begins the next one.
func (q *riverRig) work(ctx context.Context, job *river.Job[step]) error {
	next, more := job.Args.next()
	var err error
	switch {
	case q.way == riverByTransaction:
		err = q.exchange(ctx, job, next, more)
	case more:
		err = q.insert.one(ctx, next)
	}
	if err == nil && !more {
		q.done.Add(1)
		<-q.room
	}
	return err
}

// exchange completes a job and inserts the next in one transaction.
func (q *riverRig) exchange(ctx context.Context, job *river.Job[step], next step, more bool) error {
	return pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		if more {
			if _, err := q.client.InsertTx(ctx, tx, next, next.insertOpts()); err != nil {
				return err
			}
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// livesFor runs whole lives for a time, with as many callers as the spool has, and returns once all have ended.
func (q *riverRig) livesFor(ctx context.Context, r *rig, d time.Duration) (int64, time.Duration, error) {
	var n atomic.Int64
	before := q.done.Load()
	begun := time.Now()
	group, callers := errgroup.WithContext(ctx)
	for range r.o.Outstanding {
		group.Go(func() error {
			for time.Since(begun) < d {
				sub, err := message()
				if err != nil {
					return err
				}
				select {
				case q.room <- struct{}{}:
				case <-callers.Done():
					return callers.Err()
				}
				if err := q.insert.one(callers, step{ID: sub.ID.String(), Content: string(sub.Content)}); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	ended := fmt.Sprintf("SELECT count(*) FROM river_job WHERE state = 'completed' AND queue = '%s'", queues[len(queues)-1])
	err := reached(ctx, r.Database(), ended, before+n.Load())
	return n.Load(), time.Since(begun), err
}
