package spoolbench

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// inserter inserts River's jobs as the spool commits: whatever came while the inserts before were in flight goes together, by
// COPY. So nobody can say that River was held back by one transaction for each job.
type inserter struct {
	client *river.Client[pgx.Tx]
	queue  chan insertion
	loops  sync.WaitGroup
	stop   context.CancelFunc
}

// insertion is a job that waits for its commit.
type insertion struct {
	step step
	done chan error
}

const (
	insertsInFlight = 2   // as the spool's commits
	insertAtMost    = 512 // jobs
)

func newInserter(ctx context.Context, client *river.Client[pgx.Tx]) *inserter {
	ctx, cancel := context.WithCancel(ctx)
	i := &inserter{client: client, queue: make(chan insertion, insertAtMost), stop: cancel}
	for range insertsInFlight {
		i.loops.Go(func() { i.run(ctx) })
	}
	return i
}

// one inserts a job and returns when it is durable.
func (i *inserter) one(ctx context.Context, s step) error {
	in := insertion{step: s, done: make(chan error, 1)}
	select {
	case i.queue <- in:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-in.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *inserter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-i.queue:
			i.commit(ctx, i.gather(first))
		}
	}
}

// gather takes what waits.
func (i *inserter) gather(first insertion) []insertion {
	all := []insertion{first}
	for len(all) < insertAtMost {
		select {
		case next := <-i.queue:
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

func (i *inserter) commit(ctx context.Context, all []insertion) {
	params := make([]river.InsertManyParams, len(all))
	for at, in := range all {
		params[at] = river.InsertManyParams{Args: in.step, InsertOpts: in.step.insertOpts()}
	}
	_, err := i.client.InsertManyFast(ctx, params)
	for _, in := range all {
		in.done <- err
	}
}

// close ends the loops. Nobody may insert any more.
func (i *inserter) close() {
	i.stop()
	i.loops.Wait()
}
