// Package gateway is the SMTP edge: it takes messages from clients, gives each an id and a trace, and hands it to the
// spool. It answers 250 only once the spool has made the message durable (promise P1).
//
// The protocol itself is go-smtp's; the connection under it, where lines and messages end, is package wire. The adapter
// to a spool over gRPC is package gatewayrpc.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/gateway/wire"
)

// Options are what a gateway gets from its process.
type Options struct {
	Logger         *slog.Logger         // default: slog.Default()
	TracerProvider trace.TracerProvider // default: otel.GetTracerProvider()
	Directory      Directory            // is asked where the lists don't know a recipient; nil means nobody
}

// Gateway is an SMTP server in front of a spool. Beside what changes with the configuration ([settings]) it holds what lives
// as long as the process: what sessions of old and new settings share, and what must not be forgotten by a reload.
type Gateway struct {
	spool  Spool
	log    *slog.Logger
	tracer trace.Tracer
	traced bool // somebody may get the spans: their attributes cost more than they

	memory   *memory
	grey     *greylist
	checks   chan struct{} // each check of a password takes one: it takes a core and some 20 MB
	shutdown time.Duration // timeouts.shutdown as it was at the start

	first     Config    // what New was given; of Listen
	directory Directory // the same

	set     *settings // the newest; of Listen, then of Run's goroutine
	sockets []*socket // the same, in the order of the listeners
	reloads chan reload

	serving  sync.WaitGroup // the goroutines of ports, old ones too; each ends with the last session of its port
	resizing sync.WaitGroup // the goroutines that wait for memory to shrink
	failed   chan error     // why a socket accepts no more

	mu       sync.Mutex
	clients  map[*wire.Conn]*client
	perHost  map[netip.Prefix]int // sessions of a client's address or network
	stopping bool

	halting chan struct{} // closed with stopping
	ended   chan struct{} // closed when the last session has ended
}

// scope names the instrumentation.
const scope = "github.com/rohrpost/rohrpost/gateway"

// New makes a gateway. It fails where cfg is not valid. What cfg refers to must not be changed afterwards.
func New(cfg Config, spool Spool, opts Options) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	_, untraced := opts.TracerProvider.(noop.TracerProvider)
	return &Gateway{
		spool:    spool,
		traced:   !untraced,
		log:      opts.Logger,
		tracer:   opts.TracerProvider.Tracer(scope),
		memory:   newMemory(int64(cfg.MaxMemory)),
		grey:     newGreylist(),
		checks:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		shutdown: cfg.Timeouts.Shutdown,
		reloads:  make(chan reload),
		failed:   make(chan error, 1),
		clients:  make(map[*wire.Conn]*client),
		perHost:  make(map[netip.Prefix]int),
		halting:  make(chan struct{}),
		ended:    make(chan struct{}),

		first:     cfg,
		directory: opts.Directory,
	}, nil
}

// Listen opens the listening sockets and returns their addresses in the order of the configuration. Connections wait in
// their queues until Run. It fails, too, where the process may not open as many files as it may have sessions.
func (g *Gateway) Listen(ctx context.Context) ([]net.Addr, error) {
	next, err := g.prepare(ctx, g.first, g.directory)
	if err != nil {
		return nil, err
	}
	g.set, g.sockets = next.set, next.sockets
	for i, s := range g.sockets {
		s.serveBy(next.set.ports[i])
	}
	return next.addrs(), nil
}

// warner logs that files could not be read again.
func (g *Gateway) warner(ctx context.Context, message string) func(error) {
	return func(err error) { g.log.WarnContext(context.WithoutCancel(ctx), message, "error", err) }
}

// Run serves until ctx ends, calling Listen if that has not been done. Then it accepts no more connections, tells idle
// sessions 421, lets messages under way finish for timeouts.shutdown, and returns when all sessions have ended. It is
// called once.
func (g *Gateway) Run(ctx context.Context) error {
	if g.set == nil {
		if _, err := g.Listen(ctx); err != nil {
			return err
		}
	}
	// Work outlives ctx by the time that it is given to finish.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for _, s := range g.sockets {
		g.startPort(work, s.port)
		g.startSocket(work, s)
	}
	err := g.serve(ctx, work)
	g.refuseNew()
	g.stop(work, cancel)
	return err
}

// serve reloads when it is asked to, until ctx ends or a socket fails.
func (g *Gateway) serve(ctx, work context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.failed:
			return fmt.Errorf("accepting connections: %w", err)
		case r := <-g.reloads:
			r.done <- g.reload(ctx, work, r)
		}
	}
}

// refuseNew ends the listening and asks sessions to end.
func (g *Gateway) refuseNew() {
	g.mu.Lock()
	g.stopping = true
	close(g.halting)
	for w := range g.clients {
		w.Shutdown()
	}
	g.mu.Unlock()
	for _, s := range g.sockets {
		s.close()
	}
	for _, s := range g.sockets {
		s.retire()
	}
}

// killAfter is how long a session may take to say 451 and 421 once its work has been cancelled.
const killAfter = time.Second

// stop waits for all sessions to end, and ends those that take too long.
func (g *Gateway) stop(work context.Context, cancel context.CancelFunc) {
	late := time.AfterFunc(g.shutdown, func() {
		g.log.WarnContext(work, "messages under way took too long, ending their sessions")
		cancel()
		g.all((*wire.Conn).CutOff)
		kill := time.NewTimer(killAfter)
		defer kill.Stop()
		select {
		case <-kill.C:
			g.all((*wire.Conn).Kill)
		case <-g.ended:
		}
	})
	defer late.Stop()
	g.serving.Wait()
	g.resizing.Wait()
	close(g.ended)
}

// all does something to all sessions.
func (g *Gateway) all(do func(*wire.Conn)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w := range g.clients {
		do(w)
	}
}
