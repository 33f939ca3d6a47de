//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// traffic is what clients do. A client whose mail is refused, or whose session breaks, goes on with another mail, so that
// each mail is attempted once.
type traffic struct {
	run      string   // makes ids unique
	gateways []string // host:port
	book     *ledger.Writer
	accepted atomic.Int64
	serial   atomic.Int64
}

// refusedBox is a mailbox that the next hop does not know.
const refusedBox = "user3@two.example"

// patience is how long a client waits for a reply; for that to the content ten times as long, more than the gateway waits
// for the spool.
const patience = 3 * time.Second

// config is what all clients have in common.
func (t *traffic) config(gateway string) gen.Config {
	return gen.Config{
		Target: gateway, Run: fmt.Sprintf("%s-%d", t.run, t.serial.Add(1)), Ledger: t.book, Timeout: patience, Grace: 10 * patience,
		Sessions: 1, PerSession: 20, Think: 30 * time.Millisecond, Sender: "sender@a.example", Users: 20,
		Domains: []string{"one.example", "two.example", "three.example", "box.example"},
		Mails:   []*mail.Mail{mail.Sized(700), mail.Sized(4 << 10), mail.Sized(1500), mail.Sized(30 << 10), mail.Sized(10 << 10)},
	}
}

// flow sends for a time at every gateway, in the ways that clients have: step by step, pipelined to several recipients,
// and large mail by BDAT, which goes to the spool on a stream of its own.
func (t *traffic) flow(ctx context.Context, length time.Duration, sessions int) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, gateway := range t.gateways {
		plain, pipelined, large := t.config(gateway), t.config(gateway), t.config(gateway)
		plain.Sessions = max(1, sessions/len(t.gateways)-2)
		// Three recipients of two domains: two of them share an attempt.
		pipelined.Pipelining, pipelined.Recipients, pipelined.Domains = true, 3, []string{"one.example", "two.example"}
		large.Chunk, large.Mails = 64<<10, []*mail.Mail{mail.Sized(200 << 10), mail.Sized(100 << 10), mail.Sized(700 << 10)}
		large.Think = 300 * time.Millisecond
		for _, config := range []gen.Config{plain, pipelined, large} {
			config.Duration = length
			wg.Go(func() {
				err := t.send(ctx, config)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// send makes a load and counts what was accepted, while it goes on too.
func (t *traffic) send(ctx context.Context, config gen.Config) error {
	var counted tally
	config.Progress = func(p gen.Progress) { t.accepted.Add(counted.raise(p.Accepted)) }
	result, err := gen.Run(ctx, config)
	if err != nil {
		return err
	}
	t.accepted.Add(counted.raise(result.Accepted))
	return nil
}

// tally is a count that is told by several at once, each of them as far as it knows.
type tally struct {
	mu sync.Mutex
	n  int64
}

// raise takes note of a count and returns by how much it is more than was known.
func (t *tally) raise(to int64) (by int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by = max(0, to-t.n)
	t.n += by
	return by
}

// some sends until n mails have been accepted at each gateway. It is an error if the context ends before.
func (t *traffic) some(ctx context.Context, n int64) error {
	for _, gateway := range t.gateways {
		for want := t.accepted.Load() + n; t.accepted.Load() < want; {
			config := t.config(gateway)
			config.Messages = want - t.accepted.Load()
			if err := t.send(ctx, config); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%d of %d mails were accepted: %w", n+t.accepted.Load()-want, n, context.Cause(ctx))
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
