package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// reload is a configuration that Run is asked to go on with.
type reload struct {
	cfg       Config
	directory Directory
	done      chan reloaded // has room for the one answer
}

// reloaded is what became of it.
type reloaded struct {
	addrs []net.Addr
	err   error
}

// errNotRunning is told where there is nothing to reload.
var errNotRunning = errors.New("the gateway is stopping")

// Reload goes on with another configuration, while Run runs. All of it is made ready first: files are read, new addresses
// listened at. Where that fails, the error names the key and the mend, and nothing has changed.
//
// Then connections that come get the new settings; sessions under way end as they began. A listener at an address of
// before keeps its socket, so that no connection is refused in between; one whose address is gone closes its socket, and
// its sessions go on. What can't change while the process runs is logged. It returns the addresses of the listeners.
//
// directory answers for cfg.Accept.Directory; nil means nobody. What cfg refers to must not be changed afterwards.
func (g *Gateway) Reload(ctx context.Context, cfg Config, directory Directory) ([]net.Addr, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := reload{cfg: cfg, directory: directory, done: make(chan reloaded, 1)}
	select {
	case g.reloads <- r:
		done := <-r.done
		return done.addrs, done.err
	case <-g.halting:
		return nil, errNotRunning
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// generation is a configuration that is ready to be gone on with.
type generation struct {
	set     *settings
	sockets []*socket // in the order of the listeners
	fresh   []*socket // those among them that are new
	gone    []*socket // those of before that are not among them
}

// prepare makes everything of a configuration that can fail.
func (g *Gateway) prepare(ctx context.Context, cfg Config, directory Directory) (*generation, error) {
	if err := checkFiles(cfg.MaxSessions); err != nil {
		return nil, err
	}
	set, err := g.newSettings(ctx, cfg, directory, g.set)
	if err != nil {
		return nil, err
	}
	next := &generation{set: set, gone: append([]*socket(nil), g.sockets...)}
	for i, l := range cfg.Listeners {
		s := next.keep(l)
		if s == nil {
			if s, err = openSocket(ctx, l); err != nil {
				next.giveBack()
				return nil, keyed(i, err)
			}
			next.fresh = append(next.fresh, s)
		}
		next.sockets = append(next.sockets, s)
	}
	return next, nil
}

// keep returns the socket of before that is at the address of a listener, nil if there is none.
func (n *generation) keep(l Listener) *socket {
	for i, s := range n.gone {
		if s.listener.Listen == l.Listen {
			n.gone = append(n.gone[:i], n.gone[i+1:]...)
			return s
		}
	}
	return nil
}

// addrs are where the listeners listen.
func (n *generation) addrs() []net.Addr {
	var addrs []net.Addr
	for _, s := range n.sockets {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func (n *generation) giveBack() {
	for _, s := range n.fresh {
		s.close()
	}
}

// reload is called by Run. ctx ends when no more is served.
func (g *Gateway) reload(ctx, work context.Context, r reload) reloaded {
	next, err := g.prepare(ctx, r.cfg, r.directory)
	if err != nil {
		return reloaded{err: err}
	}
	g.tellLater(ctx, next)
	for _, p := range next.set.ports {
		g.startPort(work, p)
	}
	for i, s := range next.sockets {
		s.serveBy(next.set.ports[i])
	}
	for _, s := range next.fresh {
		g.startSocket(work, s)
	}
	for _, s := range next.gone {
		s.close()
	}
	for _, s := range next.gone {
		s.retire()
	}
	g.resizeMemory(ctx, int64(r.cfg.MaxMemory))
	g.set, g.sockets = next.set, next.sockets
	return reloaded{addrs: next.addrs()}
}

// tellLater logs what of a new configuration is not in force before the next start.
func (g *Gateway) tellLater(ctx context.Context, next *generation) {
	later := func(key string) { g.log.WarnContext(ctx, "takes effect at the next start", "key", key) }
	if next.set.cfg.Timeouts.Shutdown != g.shutdown {
		later("gateway.timeouts.shutdown")
	}
	for i, l := range next.set.cfg.Listeners {
		if l.ReusePort != next.sockets[i].listener.ReusePort {
			later(fmt.Sprintf("gateway.listeners[%d].reuse_port", i))
		}
	}
}

// keyed names the listener in an error.
func keyed(listener int, err error) error {
	return fmt.Errorf("gateway.listeners[%d].%w", listener, err)
}
