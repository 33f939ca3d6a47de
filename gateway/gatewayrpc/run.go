package gatewayrpc

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// logEvery says which of the failures in a row to reach a spool are logged.
const logEvery = 20

// Run keeps streams to the spools until ctx ends; then messages without an answer are told 451. Stop the gateway first. It
// is called once.
func (c *Client) Run(ctx context.Context) error {
	var keepers sync.WaitGroup
	c.outage.Reset(c.opts.Unreachable)
	defer c.outage.Stop()
	defer c.abandon()
	defer keepers.Wait()
	for _, t := range c.given {
		keepers.Go(func() { c.keep(ctx, t) })
	}
	tend := time.NewTicker(tendEvery)
	defer tend.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tend.C:
			c.tend()
		case <-c.told:
			for _, t := range c.meet(ctx) {
				keepers.Go(func() { c.keep(ctx, t) })
			}
		}
	}
}

// keep holds a stream to whichever spool t leads to, again and again, until ctx ends or nobody tells of that spool any more.
func (c *Client) keep(ctx context.Context, t *target) {
	defer c.release(t)
	var streams sync.WaitGroup
	defer streams.Wait()
	var last string // the spool that was lost
	for failures := 0; ctx.Err() == nil; {
		s, err := c.connect(ctx, t)
		if err != nil {
			if c.part(t) {
				return
			}
			c.missed(last)
			failures++
			if ctx.Err() == nil && failures%logEvery == 1 {
				c.opts.Logger.WarnContext(ctx, "spool not reached", "address", t.address, "spool", last, "error", err, "failures", failures)
			}
			c.backOff(ctx, failures)
			continue
		}
		failures = 0
		if double := c.join(s); double != nil { // another address leads there as well
			s.cancel(nil)
			select {
			case <-double.left:
			case <-ctx.Done():
			}
			continue
		}
		streams.Go(func() { c.serve(ctx, s) })
		<-s.left
		// Where it drains, go on at once: t may lead to another. What was sent is still answered.
		last = s.name
		if !s.drained.Load() {
			c.backOff(ctx, 1)
		}
	}
}

// backOff waits for a random time that grows with the number of failures, so that gateways don't come back all at once.
func (c *Client) backOff(ctx context.Context, failures int) {
	d := min(c.opts.MinBackoff<<min(failures-1, 16), c.opts.MaxBackoff)
	d = d/2 + rand.N(d/2+1) //nolint:gosec // jitter is no secret
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
