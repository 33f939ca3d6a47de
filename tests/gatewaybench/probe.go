package gatewaybench

import (
	"context"
	"fmt"
	"net"
	"net/textproto"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

const (
	probeRate     = 100 // sessions a second
	probePatience = 20 * time.Second
)

// probe opens sessions at even distances for a time, however long those before take, and tells how long the replies to EHLO, MAIL
// and RCPT took.
func probe(ctx context.Context, address string, d time.Duration) (latency.Summary, error) {
	var took latency.Recorder
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / probeRate)
	defer tick.Stop()
	for n := range int(d.Seconds() * probeRate) {
		select {
		case <-tick.C:
			group.Go(func() error { return probeOnce(ctx, address, func(d time.Duration) { took.Record(n, d) }) })
		case <-ctx.Done():
			return latency.Summary{}, group.Wait()
		}
	}
	err := group.Wait()
	return took.Summary(), err
}

// probeOnce has one session without a message.
func probeOnce(ctx context.Context, address string, record func(time.Duration)) error {
	conn, err := (&net.Dialer{Timeout: probePatience}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(probePatience)); err != nil {
		return err
	}
	c := textproto.NewConn(conn)
	defer c.Close() //nolint:errcheck // the session is over
	if _, _, err := c.ReadResponse(220); err != nil {
		return err
	}
	for _, command := range []string{"EHLO probe.test", "MAIL FROM:<ann@a.example>", "RCPT TO:<bob@b.example>", "RSET", "QUIT"} {
		sent := time.Now()
		if err := c.PrintfLine("%s", command); err != nil {
			return err
		}
		if _, _, err := c.ReadResponse(2); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if command != "RSET" && command != "QUIT" {
			record(time.Since(sent))
		}
	}
	return nil
}

// listening waits until something listens at an address.
func listening(ctx context.Context, address string, p *stack.Process) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("%s has ended: %w\n%s", p.Name, p.Err(), p.Log())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
