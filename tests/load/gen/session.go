package gen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// pauses after a session that could not be opened, so that a server that is down is not hammered.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// worker runs sessions one after another until nothing is left to send. Where the run has no other end than its number of
// messages, it gives up a server with which no session could be opened for Timeout.
func (r *run) worker(ctx context.Context, number int) {
	pause, well := firstPause, time.Now()
	for ctx.Err() == nil {
		n := r.claim()
		if n == 0 {
			return
		}
		if r.session(ctx, number, time.Now(), n) {
			pause, well = firstPause, time.Now()
			continue
		}
		if r.cfg.Duration == 0 && time.Since(well) >= r.cfg.Timeout {
			return
		}
		wait(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// wait waits, and ends early with ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// session opens a session and sends up to n messages on it. It is false where not even one could be tried. start is
// when the session was to begin: times count from there, so that a late start shows.
func (r *run) session(ctx context.Context, number int, start time.Time, n int64) bool {
	c := &client{cfg: r.cfg}
	c.greeted = func() {
		r.greeted()
		c.greeted = nil
	}
	defer func() {
		if c.greeted == nil {
			r.open.Add(-1)
		}
		if c.raw != nil {
			r.untrack(c.raw)
		}
	}()
	err := c.connect(ctx, r.dialer)
	if err == nil && !r.track(c.raw) {
		err = context.Canceled
	}
	if err != nil {
		r.unsent(ctx, n)
		if ctx.Err() == nil {
			r.fail(err)
		}
		return false
	}
	opened := start
	r.opened(number, time.Since(opened))
	if r.cfg.Rate == 0 {
		start = time.Now() // nobody was to send before a session was there
	}
	slow := slowOne(number, r.cfg.SlowShare)
	broken := false
	sent := int64(0)
	for ; sent < n; sent++ {
		if sent > 0 {
			start = time.Now()
			if r.cfg.Think > 0 {
				wait(ctx, r.cfg.Think)
				start = time.Now()
			}
		}
		if broken || ctx.Err() != nil {
			r.unsent(ctx, n-sent)
			break
		}
		broken = r.message(c, number, start, slow)
	}
	if !broken {
		if err := c.quit(); err != nil {
			r.fail(err)
		}
	}
	r.closed(number, sent, broken || sent < n, time.Since(opened))
	return true
}

// slowOne tells whether a session is one of a share that are slow, spread evenly over their numbers.
func slowOne(number int, share float64) bool {
	const rounding = 1e-9
	below := func(n int) float64 { return math.Floor(float64(n)*share + rounding) }
	return below(number+1) > below(number)
}

var errSomeRejected = errors.New("some recipients of an accepted message were refused")

// message sends one message and books what became of it. It is true where the session can't go on.
func (r *run) message(c *client, number int, start time.Time, slow bool) (broken bool) {
	i := r.next.Add(1) - 1
	entry := &ledger.Entry{ID: r.cfg.Run + "-" + strconv.FormatInt(i, 10), Sender: r.cfg.Sender, Start: start}
	t := &transaction{c: c, kind: &r.kinds[i%int64(len(r.kinds))], entry: entry, slow: slow}
	r.began()
	err := t.send(r.recipients(i))
	if err != nil {
		r.fail(err)
	} else if len(entry.Rejected) > 0 {
		r.fail(errSomeRejected)
	}
	if r.cfg.Ledger != nil {
		if err := r.cfg.Ledger.Write(entry); err != nil {
			r.fail(&phaseError{"ledger", err})
		}
	}
	r.ended(number, i, t)
	return t.broken
}

// recipients are those of the ith message.
func (r *run) recipients(i int64) []string {
	all := make([]string, r.cfg.Recipients)
	for k := range all {
		n := i*int64(r.cfg.Recipients) + int64(k)
		domain := r.cfg.Domains[n%int64(len(r.cfg.Domains))]
		user := n / int64(len(r.cfg.Domains)) % int64(r.cfg.Users)
		all[k] = "user" + strconv.FormatInt(user, 10) + "@" + domain
	}
	return all
}

// describe puts errors into few classes, to be counted.
func describe(err error) string {
	var refused *replyError
	var phase *phaseError
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("%s %d", refused.phase, refused.code)
	case !errors.As(err, &phase):
		return err.Error()
	}
	for _, c := range []struct {
		is   error
		word string
	}{
		{os.ErrDeadlineExceeded, "timeout"},
		{context.DeadlineExceeded, "timeout"},
		{syscall.ECONNRESET, "reset"},
		{syscall.EPIPE, "reset"},
		{syscall.ECONNREFUSED, "refused"},
		{syscall.EADDRNOTAVAIL, "no port"},
		{syscall.EMFILE, "too many open files"},
		{io.EOF, "closed"},
		{io.ErrUnexpectedEOF, "closed"},
		{net.ErrClosed, "ended by us"},
	} {
		if errors.Is(phase.err, c.is) {
			return phase.phase + ": " + c.word
		}
	}
	return phase.Error()
}
