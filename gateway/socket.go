package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// socket accepts connections at an address and hands them to a port. It may outlive ports: a reload gives it another one.
type socket struct {
	net.Listener
	listener Listener      // what it was opened for
	closed   chan struct{} // closed with it
	done     chan struct{} // closed when nothing more is accepted

	mu   sync.Mutex // held while a connection is handed over, so that none comes to a port that has been replaced
	port *port

	sessions int // of all its ports; guarded by Gateway.mu
}

// openSocket listens at the address of a listener.
func openSocket(ctx context.Context, l Listener) (*socket, error) {
	var config net.ListenConfig
	if l.ReusePort {
		config.Control = reusePort
	}
	nl, err := config.Listen(ctx, "tcp", l.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; stop what listens there, or give another address", err)
	}
	return &socket{Listener: nl, listener: l, closed: make(chan struct{}), done: make(chan struct{})}, nil
}

// close accepts nothing more. It is called once.
func (s *socket) close() {
	close(s.closed)
	_ = s.Close() // nothing to be done about it
}

// retire retires the port of a socket that was closed, once the last connection that it accepted has been handed over.
func (s *socket) retire() {
	<-s.done
	s.port.retire()
}

// serveBy hands connections that come to another port, and retires the one of before. A new socket has none.
func (s *socket) serveBy(p *port) {
	s.mu.Lock()
	before := s.port
	s.port = p
	s.mu.Unlock()
	if before != nil {
		before.retire()
	}
}

// startSocket accepts connections until the socket is closed. Their work runs under work.
func (g *Gateway) startSocket(work context.Context, s *socket) {
	go func() {
		defer close(s.done)
		if err := g.accept(work, s); err != nil {
			select {
			case g.failed <- err:
			default: // one is enough to stop
			}
		}
	}()
}

func (g *Gateway) accept(work context.Context, s *socket) error {
	var wait time.Duration
	for {
		nc, err := s.Accept()
		switch {
		case err == nil:
			wait = 0
			s.handOver(work, nc)
		case s.isClosed():
			return nil
		case !broken(err):
			wait = min(max(2*wait, minAcceptWait), maxAcceptWait)
			g.log.WarnContext(work, "no connection can be accepted, trying again", "error", err, "wait", wait)
			s.pause(wait)
		default:
			return err
		}
	}
}

// The waits before the next try to accept, as for want of open files: each is twice the one before.
const (
	minAcceptWait = 5 * time.Millisecond
	maxAcceptWait = time.Second
)

// broken tells whether a socket can accept nothing any more. All else may go better later: no files or memory, a client that is
// gone already, or a fault of its network, which Linux tells here too.
func broken(err error) bool {
	for _, e := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *socket) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// pause ends early when the socket is closed.
func (s *socket) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closed:
	}
}

// handOver makes a session of a connection, or tells it 421 (case D10).
func (s *socket) handOver(work context.Context, nc net.Conn) {
	s.mu.Lock()
	p := s.port
	w := p.admit(work, s, nc)
	if w != nil {
		p.accepted <- w // the library takes it at once
	}
	s.mu.Unlock()
	if w == nil {
		p.turnAway(work, nc)
	}
}
