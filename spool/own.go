package spool

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rohrpost/rohrpost/spool/fault"
)

// own registers the spool and keeps its lease, registering anew where that is lost, until the context ends.
func (s *Spool) own(ctx context.Context) {
	s.loadEpochs(ctx)
	for wait := 100 * time.Millisecond; ctx.Err() == nil; {
		if err := s.register(ctx); err != nil {
			s.away.Store(true)
			s.log.WarnContext(ctx, "The store can't be reached to register", "error", err)
			sleep(ctx, wait)
			wait = min(2*wait, 2*time.Second)
			continue
		}
		wait = 100 * time.Millisecond
		err := s.keepLease(ctx)
		if ctx.Err() != nil {
			return // the lease is given back by HandOver
		}
		s.log.ErrorContext(ctx, "The spool has lost its lease and starts anew", "error", err)
		s.lease.Store(nil)
		s.hello.Store(nil)
		s.changeIncarnation(0)
	}
}

// register makes a new incarnation.
func (s *Spool) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease)
	defer cancel()
	asked := s.opts.Now()
	l, err := s.store.Register(ctx, Registration{
		Name: s.opts.Name, Address: s.opts.Address, Lease: s.cfg.Lease, Known: s.epochs, Doubt: s.unread,
	})
	if err != nil {
		return err
	}
	if err := s.readSuspensions(ctx, 0); err != nil { // before the first job of this incarnation
		return err
	}
	s.keepEpoch(ctx, l)
	s.hold(l, asked)
	s.away.Store(false)
	s.changeIncarnation(l.Incarnation)
	s.tellHeld(ctx, l.Held)
	s.tellHello(Hello{Name: s.opts.Name, Incarnation: l.Incarnation})
	s.log.InfoContext(ctx, "The spool is registered", "incarnation", int64(l.Incarnation))
	notifyChan(s.poke)
	return nil
}

// hold takes note of a lease. It ends by our clock as if it had been given when it was asked for, less a tenth, so that
// we stop before others may take over.
func (s *Spool) hold(l Lease, asked time.Time) {
	length := l.Expires.Sub(l.Now)
	s.clock.Store(&reading{theirs: l.Now, ours: s.opts.Now()})
	s.lease.Store(&held{Lease: l, end: asked.Add(length - length/10)})
}

// changeIncarnation makes the core forget what it holds. Incarnation 0 is none.
func (s *Spool) changeIncarnation(inc Incarnation) {
	s.post(item{do: func(ctx context.Context) {
		if s.core.inc == inc {
			return
		}
		s.apply(ctx, lostIncarnation{next: inc})
		c := &s.commits
		dropped := append(c.pending, c.solo...)
		c.pending, c.solo, c.searches, c.retryAt, c.fails = nil, nil, nil, time.Time{}, 0
		s.dropWrites(dropped)
	}})
}

// doubt is a reason to look at an incarnation's lease: that it was found fenced, or that the store did not answer.
type doubt struct {
	inc Incarnation
	err error
}

// lookAtLease makes own renew at once, or register anew where err is ErrFenced.
func (s *Spool) lookAtLease(inc Incarnation, err error) {
	select {
	case s.doubt <- doubt{inc: inc, err: err}:
	default:
	}
}

// keepLease renews the lease every third of it. It returns when the lease is lost, or may soon be.
func (s *Spool) keepLease(ctx context.Context) error {
	interval := s.cfg.Lease / 3
	next := time.NewTimer(interval)
	defer next.Stop()
	for {
		l := s.lease.Load()
		end := time.NewTimer(l.end.Sub(s.opts.Now()))
		select {
		case <-ctx.Done():
			end.Stop()
			return ctx.Err()
		case <-end.C:
			return errors.New("it could not be renewed in time")
		case d := <-s.doubt:
			if d.inc != l.Incarnation {
				end.Stop()
				continue
			}
			if errors.Is(d.err, ErrFenced) {
				end.Stop()
				return d.err
			}
		case <-next.C:
		}
		end.Stop()
		err := s.renewLease(ctx, l)
		switch {
		case errors.Is(err, ErrFenced):
			return err
		case err != nil:
			s.away.Store(true)
			s.log.WarnContext(ctx, "The lease could not be renewed", "error", err)
			next.Reset(min(interval, 500*time.Millisecond))
		default:
			s.away.Store(false)
			next.Reset(interval)
		}
	}
}

func (s *Spool) renewLease(ctx context.Context, l *held) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease/3)
	defer cancel()
	s.mu.Lock()
	low := s.core.lowWater(lowestID(l.WindowStart))
	s.mu.Unlock()
	if err := s.opts.Faults.Reach(fault.LeaseRenew); err != nil {
		return err
	}
	asked := s.opts.Now()
	renewed, err := s.store.Renew(ctx, l.Incarnation, low, s.cfg.Lease)
	if err != nil {
		return err
	}
	if renewed.Incarnation == 0 {
		renewed.Incarnation = l.Incarnation
	}
	s.hold(renewed, asked)
	if last := len(s.epochs) - 1; last >= 0 {
		s.epochs[last].Renewals = renewed.Renewals
	}
	if s.unsaved {
		s.saveEpochs(ctx)
	}
	if renewed.Held != l.Held {
		s.tellHeld(ctx, renewed.Held)
	}
	return nil
}

// lowWater is the lowest id of the core's messages, or low where that is lower.
func (c *core) lowWater(low ID) ID {
	for id := range c.messages {
		if bytes.Compare(id[:], low[:]) < 0 {
			low = id
		}
	}
	return low
}

// lowestID is the lowest id of a time.
func lowestID(at time.Time) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	return id
}

// tend adopts what other incarnations left, and learns of other spools.
func (s *Spool) tend(ctx context.Context) {
	every := time.NewTicker(s.cfg.Lease / 2)
	defer every.Stop()
	for {
		if l := s.lease.Load(); l != nil && !s.away.Load() {
			if err := s.tendOnce(ctx, l.Incarnation); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "The store could not be tended", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (s *Spool) tendOnce(ctx context.Context, inc Incarnation) error {
	n, err := s.store.AdoptExpired(ctx, inc)
	if err != nil {
		return fmt.Errorf("adopting: %w", err)
	}
	if n > 0 {
		s.log.InfoContext(ctx, "Messages of dead spools are adopted", "messages", n)
		notifyChan(s.poke)
	}
	if err := s.watchUsage(ctx); err != nil {
		return err
	}
	peers, err := s.store.Peers(ctx, inc)
	if err != nil {
		return fmt.Errorf("asking for peers: %w", err)
	}
	if h := s.hello.Load(); h != nil && h.Incarnation == inc && !slices.Equal(h.Peers, peers) {
		hello := *h
		hello.Peers = peers
		s.tellHello(hello)
	}
	return nil
}

const (
	// maintainEvery is how often partitions are made and orphans removed.
	maintainEvery = 5 * time.Minute
	// maintainGrace is how long a spool that stops waits for the store to break maintenance off.
	maintainGrace = time.Second
)

// maintain keeps the store in order. It may take minutes, as where a dump is made, so nothing else waits for it.
func (s *Spool) maintain(ctx context.Context) {
	for {
		wait := s.cfg.Lease / 2
		if l := s.lease.Load(); l != nil && !s.away.Load() {
			if err := s.store.Maintain(ctx, l.Incarnation); err == nil {
				wait = maintainEvery
			} else if ctx.Err() == nil {
				s.log.WarnContext(ctx, "The store could not be maintained", "error", err)
			}
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// tellHello changes the hello and tells the workers.
func (s *Spool) tellHello(h Hello) {
	s.hello.Store(&h)
	s.post(item{do: func(context.Context) {
		hello, ok := s.Hello()
		if !ok {
			return
		}
		for _, p := range s.core.peers {
			s.tell(p.worker, func(sink WorkerSink) { sink.SendHello(hello) })
		}
	}})
}

// claimLimit is how many messages are claimed at a time.
const claimLimit = 256

// claim loads messages that are due, while there is room.
func (s *Spool) claim(ctx context.Context) {
	every := time.NewTicker(s.cfg.Tick)
	defer every.Stop()
	for {
		more := s.claimOnce(ctx)
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-s.poke:
		}
	}
}

// claimOnce claims once, and tells whether there may be more.
func (s *Spool) claimOnce(ctx context.Context) bool {
	l := s.lease.Load()
	if l == nil || l.Held || s.away.Load() || s.stopping.Load() || !s.mayAct() {
		return false
	}
	s.mu.Lock()
	limit, ours := min(s.core.room(), claimLimit), s.core.inc == l.Incarnation
	crowded, suspended := s.core.sched.allCrowded(), s.core.sched.suspended
	s.mu.Unlock()
	if limit <= 0 || !ours {
		return false
	}
	messages, err := s.store.Claim(ctx, l.Incarnation, ClaimLimits{
		Messages: limit, PerDestination: s.cfg.claimsFor(), Ahead: s.cfg.lookAhead(), Without: crowded, Suspended: suspended,
	})
	if err != nil {
		if errors.Is(err, ErrFenced) {
			s.lookAtLease(l.Incarnation, err)
		}
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "Messages that are due can't be claimed", "error", err)
		}
		return false
	}
	if len(messages) > 0 {
		_ = s.opts.Faults.Reach(fault.ClaimDurable) // it stalls or exits, but can't fail
	}
	more := len(messages) == limit
	taken := make(chan bool, 1)
	s.post(item{do: func(ctx context.Context) {
		s.apply(ctx, loaded{inc: l.Incarnation, messages: messages, without: crowded, more: more})
		taken <- s.core.sched.wantsMore(s.core.now, messages)
	}})
	select {
	case again := <-taken:
		return more || again
	case <-ctx.Done():
		return false
	}
}
