package gateway

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
)

// failing is a listener that fails in one way after the other.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

// No want of files or memory, and no fault of a client's network, ends the accepting: only a socket that is no more.
func TestAcceptGoesOn(t *testing.T) {
	f := &failing{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.EBADF}}
	g := &Gateway{log: slog.New(slog.DiscardHandler)}
	err := g.accept(t.Context(), &socket{Listener: f, closed: make(chan struct{})})
	if !errors.Is(err, syscall.EBADF) || len(f.errs) > 0 {
		t.Errorf("accepting ended with %v, %d faults before its time", err, len(f.errs))
	}
}
