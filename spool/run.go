package spool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/spool/fault"
)

// Run registers with the store and runs the spool until the context ends and everything has been handed over. An outage
// of the store does not end it. It is called once. A call of the store's Maintain may outlast it that does not return within
// a second.
func (s *Spool) Run(ctx context.Context) error {
	// What runs here must outlive ctx: permitted jobs are waited for after it has ended.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var units sync.WaitGroup
	start := func(unit func(context.Context)) {
		units.Go(func() { unit(work) })
	}
	for range s.cfg.CommitsInFlight {
		start(s.committer)
	}
	start(s.loop)
	start(s.own)
	start(s.tend)
	start(s.claim)
	start(s.hear)
	start(s.obey)
	maintained := make(chan struct{})
	go func() {
		defer close(maintained)
		s.maintain(ctx)
	}()

	<-ctx.Done()
	s.log.InfoContext(ctx, "The spool stops")
	s.stopping.Store(true)
	s.post(item{event: stop{}})
	s.settle(work)
	stopWork()
	units.Wait()
	select {
	case <-maintained:
	case <-time.After(maintainGrace):
		s.log.WarnContext(ctx, "The store does not break maintenance off")
	}
	return s.leave(context.WithoutCancel(ctx))
}

// settle waits until permitted jobs have told how they went and everything is written, or the time for that is up.
func (s *Spool) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	for {
		idle := make(chan bool, 1)
		s.post(item{do: func(context.Context) {
			c := &s.commits
			idle <- s.core.permitted() == 0 && c.inFlight == 0 && len(c.pending)+len(c.solo) == 0
		}})
		select {
		case <-ctx.Done():
			return
		case done := <-idle:
			if done || s.lease.Load() == nil || !sleep(ctx, 5*time.Millisecond) {
				return
			}
		}
	}
}

// leave answers everyone who still waits and hands over what the spool holds. The loop has ended.
func (s *Spool) leave(ctx context.Context) error {
	s.drainInbox(ctx)
	pending := append(s.commits.pending, s.commits.solo...)
	for len(s.commits.work) > 0 { // no committer took it any more
		c := <-s.commits.work
		s.spans.committed(c.span, errLost())
		pending = append(pending, c.writes...)
	}
	s.apply(ctx, lostIncarnation{})
	s.commits.pending, s.commits.solo = nil, nil
	s.dropWrites(pending)
	s.inboxMu.Lock()
	s.closed = true
	s.inboxMu.Unlock()
	s.drainInbox(ctx)
	l := s.lease.Load()
	if l == nil {
		return nil
	}
	s.saveEpochs(ctx) // with the last renewal
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease)
	defer cancel()
	err := s.opts.Faults.Reach(fault.HandOver)
	n := 0
	if err == nil {
		n, err = s.store.HandOver(ctx, l.Incarnation)
	}
	if err != nil {
		return fmt.Errorf("handing over: %w (the messages are adopted when the lease ends)", err)
	}
	s.log.InfoContext(ctx, "The spool has handed over", "messages", n)
	return nil
}

// drainInbox takes what came when the loop had ended, so that nobody waits for an answer.
func (s *Spool) drainInbox(ctx context.Context) {
	s.inboxMu.Lock()
	batch := s.inbox
	s.inbox = nil
	s.inboxMu.Unlock()
	for _, i := range batch {
		if i.do != nil {
			i.do(ctx)
			continue
		}
		s.apply(ctx, i.event)
	}
	s.flushSinks()
}
