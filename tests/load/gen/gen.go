// Package gen makes load: SMTP and LMTP sessions, thousands at once, with every reply checked and every message recognisable by
// an id and a hash (package mail). What the server was asked and what it answered is written into a ledger.
package gen

import (
	"context"
	"crypto/rand"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/latency"
)

// newRun makes up how ids begin.
func newRun() string { return strings.ToLower(rand.Text()[:10]) }

// run is one run under way.
type run struct {
	cfg    *Config
	dialer *dialer
	kinds  []kind

	next  atomic.Int64 // number of the next message
	left  atomic.Int64 // messages that no session has claimed
	open  atomic.Int64 // sessions, from the server's greeting on
	begun time.Time
	hist  histograms

	mu       sync.Mutex
	peak     int64                 // of open
	conns    map[net.Conn]struct{} // nil once they are ended by force
	result   Result
	measured bool          // the warm-up is over
	warm     chan struct{} // closed then
}

type histograms struct{ connect, message, ack, session latency.Recorder }

// Run makes the load and returns what came of it: refusals and broken connections are counted, not errors. It returns when all
// sessions have ended. When ctx ends, no message is started any more, and sessions still under way are ended after Grace.
func Run(ctx context.Context, config Config) (*Result, error) {
	cfg, err := config.withDefaults(ctx)
	if err != nil {
		return nil, err
	}
	if err := RaiseFiles(cfg.Sessions + 100); err != nil {
		return nil, err
	}
	r := &run{cfg: &cfg, dialer: newDialer(&cfg), kinds: kinds(cfg.Mails), conns: map[net.Conn]struct{}{}, begun: time.Now(), warm: make(chan struct{})}
	r.result = Result{
		Run: cfg.Run, Target: cfg.Target, Concurrency: cfg.Sessions, PerSession: cfg.PerSession, Offered: cfg.Rate, Begin: r.begun,
		Errors: map[string]int64{},
	}
	if r.measured = cfg.WarmUp == 0 && cfg.WarmFor == 0; r.measured {
		close(r.warm)
	}
	r.left.Store(cfg.WarmUp + cfg.Messages)
	if cfg.Messages == 0 {
		r.left.Store(math.MaxInt64 / 2)
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var helpers sync.WaitGroup
	if cfg.Duration > 0 {
		helpers.Go(func() { r.limit(sending, stop) })
	}
	helpers.Go(func() { r.report(done) })
	forced := context.AfterFunc(sending, func() {
		select {
		case <-done:
		case <-time.After(cfg.Grace):
			r.endAll()
		}
	})
	defer forced()
	if cfg.Rate > 0 {
		r.openLoop(sending)
	} else {
		r.closedLoop(sending)
	}
	r.giveUp(sending)
	result := r.finish()
	close(done)
	stop()
	helpers.Wait() // Progress is not called any more
	return result, nil
}

// limit ends the sending when its time is over, which begins with the end of the warm-up. A warm-up that does not end, as where
// no server is there, has so long as the whole may take, and the time for one connection.
func (r *run) limit(ctx context.Context, stop func()) {
	late := time.NewTimer(r.cfg.Ramp + r.cfg.WarmFor + r.cfg.Duration + r.cfg.Timeout)
	defer late.Stop()
	select {
	case <-r.warm:
		wait(ctx, r.cfg.Duration)
	case <-late.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.result.Stop = time.Now()
	r.mu.Unlock()
	stop()
}

// closedLoop keeps a number of sessions open.
func (r *run) closedLoop(ctx context.Context) {
	var wg sync.WaitGroup
	for number := range r.cfg.Sessions {
		wg.Go(func() {
			if r.cfg.Ramp > 0 {
				wait(ctx, r.cfg.Ramp*time.Duration(number)/time.Duration(r.cfg.Sessions))
			}
			r.worker(ctx, number)
		})
	}
	wg.Wait()
}

// openLoop starts sessions at even distances, however long those before take. One that finds all places taken starts late,
// and its time counts from when it was to start. What a session could not send is not left to another, which would be one
// more than was asked for: it has failed.
func (r *run) openLoop(ctx context.Context) {
	places := make(chan struct{}, r.cfg.Sessions)
	var wg sync.WaitGroup
	defer wg.Wait()
	for number := 0; ; number++ {
		start := r.begun.Add(time.Duration(float64(number) / r.cfg.Rate * float64(time.Second)))
		wait(ctx, time.Until(start))
		n := r.claim()
		if ctx.Err() != nil || n == 0 {
			return
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-places }()
			r.session(ctx, number, start, n)
		})
	}
}

// claim takes the messages of one session from those that are left.
func (r *run) claim() int64 {
	want := int64(r.cfg.PerSession)
	if want == 0 {
		// One by one would open a session for each; all at once would leave nothing for the others.
		want = max(1, (r.cfg.WarmUp+r.cfg.Messages)/int64(r.cfg.Sessions))
		if r.cfg.Messages == 0 {
			want = math.MaxInt32
		}
	}
	for {
		left := r.left.Load()
		n := min(want, left)
		if n <= 0 {
			return 0
		}
		if r.left.CompareAndSwap(left, left-n) {
			return n
		}
	}
}

// unsent books messages that a session has claimed and can't send any more.
func (r *run) unsent(ctx context.Context, n int64) {
	if r.cfg.Rate > 0 && ctx.Err() == nil {
		r.failed(n)
		return
	}
	r.left.Add(n)
}

// giveUp counts as failed what is left to send when every session has ended although there was time.
func (r *run) giveUp(ctx context.Context) {
	if left := r.left.Swap(0); r.cfg.Messages > 0 && left > 0 && ctx.Err() == nil {
		r.failed(left)
	}
}

// track notes an open connection, so that it can be ended by force.
func (r *run) track(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *run) untrack(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

func (r *run) endAll() {
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	r.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
}

// report tells the progress each second.
func (r *run) report(done <-chan struct{}) {
	if r.cfg.Progress == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			r.mu.Lock()
			p := Progress{Since: time.Since(r.begun), Open: r.open.Load(), Accepted: r.result.Accepted}
			for _, n := range r.result.Errors {
				p.Errors += n
			}
			r.mu.Unlock()
			if r.cfg.Messages > 0 {
				p.Total = r.cfg.WarmUp + r.cfg.Messages
			}
			r.cfg.Progress(p)
		}
	}
}
