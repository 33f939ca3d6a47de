//go:build linux

package chaos

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// breakThings makes the faults of the schedule while traffic goes on, until all of them are healed.
func (r *run) breakThings(ctx context.Context) {
	r.say("seed %d: %d faults within %s", r.opts.Seed, len(r.report.Faults), r.opts.Duration)
	start, before := time.Now(), r.traffic.accepted.Load()
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
	r.report.End = time.Now()
	r.report.UnderFaults = r.traffic.accepted.Load() - before
}

// fault makes one fault at its time and undoes it, also where it was made by half. What can't be made, such as ending
// connections of a database that is starting, is told.
func (r *run) fault(ctx context.Context, start time.Time, f schedule.Fault) {
	pause(ctx, time.Until(start.Add(f.At)))
	defer r.turns.take(f)()
	if ctx.Err() != nil {
		return // the run breaks off
	}
	made := attempt{Fault: f, From: time.Since(start)}
	defer func() { r.report.happened(made) }()
	undo, err := r.cluster.Do(ctx, f)
	made.InForce, made.Err = time.Since(start), err
	if err == nil {
		pause(ctx, time.Until(start.Add(f.End())))
	} else if f.Kind == schedule.Restart && f.Node != schedule.Postgres {
		r.report.broken("%v", err)
	}
	if undo != nil {
		if err := undo(context.WithoutCancel(ctx)); err != nil {
			r.report.broken("undoing %s: %v", f, err)
		}
	}
	made.Until = time.Since(start)
}

// turns see that no node has two faults at a time, as the schedule has it: on a slow machine one may take longer than it
// was to, and the next has to wait.
type turns struct {
	mu    sync.Mutex
	nodes map[string]*sync.Mutex
}

// take waits until the nodes of a fault have no other, and returns what gives them back.
func (t *turns) take(f schedule.Fault) (giveBack func()) {
	names := []string{f.Node, f.Peer}
	for i, name := range names {
		if strings.HasPrefix(name, schedule.Postgres) {
			names[i] = schedule.Postgres // its disks too
		}
	}
	slices.Sort(names) // in one order, or two would wait for each other
	names = slices.Compact(names)
	var locks []*sync.Mutex
	for _, name := range names {
		if name != "" {
			locks = append(locks, t.node(name))
		}
	}
	for _, lock := range locks {
		lock.Lock()
	}
	return func() {
		for _, lock := range locks {
			lock.Unlock()
		}
	}
}

func (t *turns) node(name string) *sync.Mutex {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes == nil {
		t.nodes = map[string]*sync.Mutex{}
	}
	if t.nodes[name] == nil {
		t.nodes[name] = new(sync.Mutex)
	}
	return t.nodes[name]
}

// progress tells now and then how many mails there were.
func (r *run) progress(ctx context.Context) {
	for pause(ctx, 15*time.Second); ctx.Err() == nil; pause(ctx, 15*time.Second) {
		r.say("%d mails accepted, %d arrived", r.traffic.accepted.Load(), r.sink.Stats().Distinct)
	}
}
