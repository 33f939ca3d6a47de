package gatewayrpc

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// logEvery says which of the failures in a row to reach a spool are logged.
const logEvery = 20

// Run keeps a stream to a spool until ctx ends; then messages without an answer are told 451. Stop the gateway first. It
// is called once.
func (c *Client) Run(ctx context.Context) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	defer c.abandon()
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	outage := time.AfterFunc(c.opts.Unreachable, c.giveUp)
	defer outage.Stop()
	for failures := 0; ctx.Err() == nil; {
		s, err := c.connectNext(streamCtx)
		if err != nil {
			failures++
			if ctx.Err() == nil && failures%logEvery == 1 {
				c.opts.Logger.WarnContext(ctx, "spool not reached", "error", err, "failures", failures)
			}
			c.backOff(ctx, failures)
			continue
		}
		failures = 0
		outage.Stop()
		c.setCurrent(s)
		streams.Go(func() {
			c.serve(ctx, s)
			c.release(s.spool)
		})
		select {
		case <-s.drained: // go on with another; what was sent on this one is still answered
			c.setCurrent(nil)
			c.opts.Logger.InfoContext(ctx, "spool is stopping")
		case <-s.finished:
			c.setCurrent(nil)
			c.backOff(ctx, 1)
		}
		outage.Reset(c.opts.Unreachable)
	}
	return nil
}

// connectNext opens a stream to the next spool. The caller releases that.
func (c *Client) connectNext(ctx context.Context) (*stream, error) {
	spool, err := c.pick()
	if err != nil {
		return nil, err
	}
	s, err := c.connect(ctx, spool)
	if err != nil {
		c.release(spool)
	}
	return s, err
}

func (c *Client) setCurrent(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = s
	if s != nil {
		c.down = false
		c.signal()
	} else {
		c.aborts = nil // they were for the stream that is gone
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
