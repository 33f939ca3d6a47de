package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

const (
	protocolVersion = 1
	// minBackoff and maxBackoff bound the wait before a stream is opened again.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// againDelay is how long a result waits that a spool could not judge yet.
	againDelay = 2 * time.Second
)

// runner keeps one stream to each spool and shares the capacity between them.
type runner struct {
	stage        spoolv1.Stage
	capacity     int
	handle       Handler
	name         string
	instance     []byte // of this start, random
	log          *slog.Logger
	provider     trace.TracerProvider
	tracer       trace.Tracer
	dial         Dialer
	drainTimeout time.Duration
	jobTimeout   time.Duration

	slots chan struct{} // one for each handler that runs
	stock *stock
	held  *held
	wg    sync.WaitGroup

	announced chan []string // addresses of spools that others told of
	draining  atomic.Bool

	mu      sync.Mutex
	streams map[string]*stream // by the spool's name, those that have said hello
	peers   map[string]context.CancelFunc
}

func defaultName(host string) string { return fmt.Sprintf("%s/%d", host, os.Getpid()) }

// run keeps the stream on conn, and those to announced peers, until ctx ends and the held jobs are done.
func (r *runner) run(ctx context.Context, conn grpc.ClientConnInterface) error {
	// Streams outlive ctx: stop fetching before cancelling work.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { cancel(); r.wg.Wait() }()

	r.wg.Go(func() { r.keep(streamCtx, conn, "") })
	r.wg.Go(func() { r.meetPeers(streamCtx) })
	<-ctx.Done()
	r.drain()
	timeout := time.NewTimer(r.drainTimeout)
	defer timeout.Stop()
	select {
	case <-r.held.empty():
	case <-timeout.C:
		r.log.WarnContext(ctx, "worker stops with jobs unfinished", "stage", r.stageName())
	}
	return nil
}

// drain tells every spool that no more jobs are wanted.
func (r *runner) drain() {
	r.draining.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Drain{Drain: &spoolv1.Drain{}}})
	}
}

// keep opens a stream on conn again and again. A peer is given up once it can't be reached and no spool announces it any
// more: one that was restarted is not announced anew where the others never missed it.
func (r *runner) keep(ctx context.Context, conn grpc.ClientConnInterface, address string) {
	backoff := minBackoff
	for ctx.Err() == nil {
		s := newStream(r, conn, address)
		err := s.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if address != "" && s.spool == "" && (s.double != nil || !r.isAnnounced(address)) {
			r.forgetPeer(address)
			return
		}
		if s.double != nil {
			select {
			case <-ctx.Done():
			case <-s.double.done:
			}
			continue
		}
		r.log.WarnContext(ctx, "work stream ended", "stage", r.stageName(), "address", address, "spool", s.spool, "error", err)
		if s.spool != "" {
			backoff = minBackoff
			r.announce(ctx, r.announcedPeers()) // one of them may be a second address of the spool that is gone
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff/2 + rand.N(backoff)): //nolint:gosec // jitter needs no secret
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// announce tells of addresses of spools.
func (r *runner) announce(ctx context.Context, addresses []string) {
	select {
	case r.announced <- addresses:
	case <-ctx.Done():
	}
}

// announcedPeers returns the addresses that the spools announce now.
func (r *runner) announcedPeers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var addresses []string
	for _, s := range r.streams {
		addresses = append(addresses, s.peers...)
	}
	return addresses
}

func (r *runner) isAnnounced(address string) bool {
	return slices.Contains(r.announcedPeers(), address)
}

// meetPeers opens streams to spools that were announced and are not known yet.
func (r *runner) meetPeers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case addresses := <-r.announced:
			for _, address := range addresses {
				r.meetPeer(ctx, address)
			}
		}
	}
}

// meetPeer opens a stream to a spool, unless there is one. A worker that drains does so too: the spool may have taken over
// from one whose results it holds.
func (r *runner) meetPeer(ctx context.Context, address string) {
	r.mu.Lock()
	_, known := r.peers[address]
	r.mu.Unlock()
	if known || r.dial == nil {
		return
	}
	conn, err := r.dial(address)
	if err != nil {
		r.log.WarnContext(ctx, "can't connect to announced spool", "address", address, "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	r.peers[address] = cancel
	r.mu.Unlock()
	r.wg.Go(func() {
		defer func() { _ = conn.Close() }()
		r.keep(ctx, conn, address)
	})
}

func (r *runner) forgetPeer(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel, known := r.peers[address]; known {
		cancel()
		delete(r.peers, address)
	}
}

// join adds a stream that has said hello, unless there is one to that spool already: that is returned then.
func (r *runner) join(s *stream) (double *stream) {
	r.mu.Lock()
	if double = r.streams[s.spool]; double != nil {
		r.mu.Unlock()
		return double
	}
	r.streams[s.spool] = s
	r.mu.Unlock()
	if r.draining.Load() {
		s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Drain{Drain: &spoolv1.Drain{}}})
	}
	for _, res := range r.held.homeless() {
		s.sendResult(res)
	}
	r.shareOut()
	return nil
}

// leave removes a stream. What was presented on it and not acknowledged goes to another spool, which may have taken over
// from the one that is gone.
func (r *runner) leave(s *stream) {
	r.mu.Lock()
	if r.streams[s.spool] == s {
		delete(r.streams, s.spool)
	}
	r.mu.Unlock()
	for _, res := range r.held.homeless() {
		r.present(res)
	}
	r.shareOut()
}

// shareOut divides the capacity between the streams, at least one job each.
func (r *runner) shareOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining.Load() || len(r.streams) == 0 {
		return
	}
	share := (r.capacity + r.stock.jobs() + len(r.streams) - 1) / len(r.streams)
	for _, s := range r.streams {
		s.setShare(share) // all of them before any has new credits: else one that used some then would have too many back
	}
	for _, s := range r.streams {
		s.topUp()
	}
}

// learn takes note of how long a job took.
func (r *runner) learn(took time.Duration) {
	if r.stock.learn(took) {
		r.shareOut()
	}
}

// present sends a result on the stream the job came on, or on another if that is gone.
func (r *runner) present(res *heldResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.streams[res.spool]; s != nil {
		s.sendResult(res)
		return
	}
	r.presentNext(res)
}

// presentElsewhere presents a result to another spool than before, if there is one.
func (r *runner) presentElsewhere(res *heldResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.presentNext(res)
}

// presentNext sends a result to the spool whose name follows that of the one which had it last, so that all are
// asked in turn: which of them takes over from one that is gone is not known here. The runner is locked: a stream that
// leaves does so before, and is not chosen, or after, and finds what was presented on it.
func (r *runner) presentNext(res *heldResult) {
	last := r.held.lastAsked(res)
	names := slices.Sorted(maps.Keys(r.streams))
	if len(names) == 0 {
		return // the next stream takes it
	}
	place, found := slices.BinarySearch(names, last)
	if found {
		place++
	}
	r.streams[names[place%len(names)]].sendResult(res)
}

// presentLater presents a result again that the spool which was asked could not judge yet.
func (r *runner) presentLater(ctx context.Context, token []byte) {
	r.wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(againDelay):
			if res := r.held.result(token); res != nil {
				r.presentElsewhere(res)
			}
		}
	})
}

func (r *runner) stageName() string {
	switch r.stage {
	case spoolv1.Stage_STAGE_PARSER:
		return "parser"
	case spoolv1.Stage_STAGE_FILTER:
		return "filter"
	case spoolv1.Stage_STAGE_DELIVER:
		return "deliver"
	default:
		return "unknown"
	}
}
