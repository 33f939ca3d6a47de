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
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/gateway/wire"
)

// Options are what a gateway gets from its process.
type Options struct {
	Logger         *slog.Logger         // default: slog.Default()
	TracerProvider trace.TracerProvider // default: otel.GetTracerProvider()
	Directory      Directory            // is asked where the lists don't know a recipient; nil means nobody
}

// Gateway is an SMTP server in front of a spool.
type Gateway struct {
	cfg    Config
	spool  Spool
	log    *slog.Logger
	tracer trace.Tracer

	directory  Directory
	recipients *recipients // set by Listen

	memory *memory
	meters []meter
	grey   *greylist

	ports []*port        // set by Listen
	auth  *authenticator // set by Listen where a listener needs it

	mu       sync.Mutex
	clients  map[*wire.Conn]*client
	perHost  map[netip.Prefix]int // sessions of a client's address or network
	stopping bool

	halting chan struct{} // closed with stopping
	ended   chan struct{} // closed when the last session has ended
}

// scope names the instrumentation.
const scope = "github.com/rohrpost/rohrpost/gateway"

// New makes a gateway. It fails where cfg is not valid.
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
	return &Gateway{
		cfg:     cfg,
		spool:   spool,
		log:     opts.Logger,
		tracer:  opts.TracerProvider.Tracer(scope),
		clients: make(map[*wire.Conn]*client),
		perHost: make(map[netip.Prefix]int),
		halting: make(chan struct{}),

		directory: opts.Directory,
		meters:    newMeters(cfg.Rates),
		grey:      newGreylist(cfg.Greylist),
		memory:    newMemory(int64(cfg.MaxMemory)),
		ended:     make(chan struct{}),
	}, nil
}

// Listen opens the listening sockets and returns their addresses in the order of the configuration. Connections wait in
// their queues until Run. It fails, too, where the process may not open as many files as it may have sessions.
func (g *Gateway) Listen(ctx context.Context) ([]net.Addr, error) {
	if err := checkFiles(g.cfg.MaxSessions); err != nil {
		return nil, err
	}
	if g.cfg.needsUsers() {
		var err error
		if g.auth, err = newAuthenticator(g.cfg.Auth, g.warner(ctx, "users not read again, the old ones stay")); err != nil {
			return nil, err
		}
	}
	var err error
	if g.recipients, err = newRecipients(g.cfg.Accept, g.directory, g.warner(ctx, "recipients not read again, the old ones stay")); err != nil {
		return nil, err
	}
	var addrs []net.Addr
	for i, l := range g.cfg.Listeners {
		p, err := g.open(ctx, l)
		if err != nil {
			g.closePorts()
			return nil, fmt.Errorf("gateway.listeners[%d].%w", i, err)
		}
		g.ports = append(g.ports, p)
		addrs = append(addrs, p.socket.Addr())
	}
	return addrs, nil
}

// warner logs that files could not be read again.
func (g *Gateway) warner(ctx context.Context, message string) func(error) {
	return func(err error) { g.log.WarnContext(context.WithoutCancel(ctx), message, "error", err) }
}

func (g *Gateway) closePorts() {
	for _, p := range g.ports {
		_ = p.socket.Close() // fails only where it has been closed
	}
}

// Run serves until ctx ends, calling Listen if that has not been done. Then it accepts no more connections, tells idle
// sessions 421, lets messages under way finish for timeouts.shutdown, and returns when all sessions have ended. It is
// called once.
func (g *Gateway) Run(ctx context.Context) error {
	if g.ports == nil {
		if _, err := g.Listen(ctx); err != nil {
			return err
		}
	}
	// Work outlives ctx by the time that it is given to finish.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	served := make(chan error, len(g.ports))
	for _, p := range g.ports {
		go func() { served <- p.serve(work) }()
	}
	var err error
	waiting := len(g.ports)
	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("accepting connections: %w", err)
		waiting--
	}
	g.refuseNew()
	for range waiting {
		g.log.DebugContext(ctx, "no longer listening", "cause", <-served)
	}
	g.stop(work, cancel)
	return err
}

// refuseNew ends the listening and asks sessions to end.
func (g *Gateway) refuseNew() {
	g.closePorts()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopping = true
	close(g.halting)
	for w := range g.clients {
		w.Shutdown()
	}
}

// killAfter is how long a session may take to say 451 and 421 once its work has been cancelled.
const killAfter = time.Second

// stop waits for all sessions to end, and ends those that take too long.
func (g *Gateway) stop(work context.Context, cancel context.CancelFunc) {
	late := time.AfterFunc(g.cfg.Timeouts.Shutdown, func() {
		g.log.WarnContext(work, "messages under way took too long, ending their sessions")
		cancel()
		kill := time.NewTimer(killAfter)
		defer kill.Stop()
		select {
		case <-kill.C:
			g.killAll()
		case <-g.ended:
		}
	})
	defer late.Stop()
	for _, p := range g.ports {
		p.wait(work)
	}
	close(g.ended)
}

func (g *Gateway) killAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w := range g.clients {
		w.Kill()
	}
}
