// Package sink takes mail by SMTP, LMTP and HTTP as a next hop does, fast enough not to be the limit of what is measured, and
// misbehaves on the wire exactly as its script says. It recognises the mails of a load test, checks that no octet changed,
// counts duplicates and writes every arrival into a ledger.
package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// Config says how a sink runs. The zero value takes SMTP at a free port of loopback.
type Config struct {
	// SMTP, LMTP and HTTP are addresses, host:port, to listen at; empty means not at all, except that SMTP is
	// 127.0.0.1:0 where all are empty.
	SMTP, LMTP, HTTP string
	// StartTLS offers STARTTLS; ImplicitTLS speaks TLS from the first octet, by HTTP too.
	StartTLS, ImplicitTLS bool
	// Certificate is shown by TLS; nil makes a self-signed one for localhost.
	Certificate *tls.Certificate
	// Script is how it misbehaves; nil means not at all. [Sink.SetScript] changes it later.
	Script *Script
	// Ledger gets an [ledger.Arrival] for each recipient of each message, before the reply is written; nil means none.
	Ledger *ledger.Writer
	// Keep is a folder for the contents as they came; empty keeps none.
	Keep string
	// Hostname is what it calls itself; empty means sink.test.
	Hostname string
}

// MaxContent is the largest content that a sink takes, in octets; more is answered by 552.
const MaxContent = 128 << 20

// Sink is a running sink.
type Sink struct {
	cfg      Config
	script   atomic.Pointer[Script]
	tls      *tls.Config
	otherTLS map[Then]*tls.Config // what rules show in place of the certificate
	smtp     net.Listener
	lmtp     net.Listener
	web      net.Listener
	server   *http.Server
	book     *book

	mu       sync.Mutex
	sessions map[net.Conn]struct{} // nil once it closes
	wg       sync.WaitGroup
	done     chan struct{} // closed by Close, so that whatever waits in a session ends
}

// Start starts a sink. It runs until Close.
func Start(ctx context.Context, cfg Config) (*Sink, error) {
	if cfg.SMTP == "" && cfg.LMTP == "" && cfg.HTTP == "" {
		cfg.SMTP = "127.0.0.1:0"
	}
	if cfg.Hostname == "" {
		cfg.Hostname = "sink.test"
	}
	s := &Sink{cfg: cfg, book: newBook(cfg.Ledger, cfg.Keep), sessions: map[net.Conn]struct{}{}, done: make(chan struct{})}
	s.script.Store(cfg.Script)
	if err := s.certificates(); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		address string
		lis     *net.Listener
		serve   func(net.Listener)
	}{
		{cfg.SMTP, &s.smtp, func(lis net.Listener) { s.accept(lis, "smtp") }},
		{cfg.LMTP, &s.lmtp, func(lis net.Listener) { s.accept(lis, "lmtp") }},
		{cfg.HTTP, &s.web, s.serveHTTP},
	} {
		if l.address == "" {
			continue
		}
		lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting a sink: %w", err), s.Close())
		}
		*l.lis = lis
		s.wg.Go(func() { l.serve(lis) })
	}
	return s, nil
}

func (s *Sink) certificates() error {
	if !s.cfg.StartTLS && !s.cfg.ImplicitTLS {
		return nil
	}
	if s.cfg.Certificate == nil {
		cert, err := SelfSigned("localhost", time.Now().Add(24*time.Hour))
		if err != nil {
			return err
		}
		s.cfg.Certificate = &cert
	}
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*s.cfg.Certificate}}
	s.otherTLS = map[Then]*tls.Config{}
	const day = 24 * time.Hour
	for then, c := range map[Then]struct {
		host  string
		valid time.Duration
	}{Certificate: {"other.invalid", -day}, Expired: {"localhost", -day}, WrongName: {"other.invalid", day}} {
		cert, err := SelfSigned(c.host, time.Now().Add(c.valid))
		if err != nil {
			return err
		}
		s.otherTLS[then] = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	return nil
}

// SMTP is the host:port at which it takes SMTP.
func (s *Sink) SMTP() string { return address(s.smtp) }

// LMTP is the host:port at which it takes LMTP.
func (s *Sink) LMTP() string { return address(s.lmtp) }

// HTTP is the host:port at which it takes HTTP.
func (s *Sink) HTTP() string { return address(s.web) }

func address(lis net.Listener) string {
	if lis == nil {
		return ""
	}
	return lis.Addr().String()
}

// SetScript changes how it misbehaves from now on.
func (s *Sink) SetScript(script *Script) { s.script.Store(script) }

// Stats is what has arrived so far.
func (s *Sink) Stats() Stats { return s.book.read() }

// Arrived tells how many of some messages, each for one recipient as [ledger.Pair] names them, have been accepted.
func (s *Sink) Arrived(pairs []string) int64 { return s.book.arrived(pairs) }

// Wait waits until n messages, counted once for each load id and recipient, have been accepted.
func (s *Sink) Wait(ctx context.Context, n int64) error {
	select {
	case <-s.book.when(n):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %d arrivals, %d came: %w", n, s.Stats().Distinct, ctx.Err())
	}
}

// accept takes connections until the listener is closed.
func (s *Sink) accept(lis net.Listener, protocol string) {
	for {
		conn, err := lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: those that are open go on
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !s.track(conn) {
			continue
		}
		s.wg.Go(func() {
			defer s.untrack(conn)
			s.session(conn, protocol)
		})
	}
}

// track notes an open connection, so that Close can end it. It is false where the sink is closing.
func (s *Sink) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		_ = conn.Close()
		return false
	}
	s.sessions[conn] = struct{}{}
	return true
}

func (s *Sink) untrack(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, conn)
}

// Close ends every session at once and waits until they are gone.
func (s *Sink) Close() error {
	s.mu.Lock()
	open := s.sessions
	s.sessions = nil
	if open != nil {
		close(s.done)
	}
	for conn := range open {
		_ = conn.Close()
	}
	server := s.server
	s.mu.Unlock()
	var errs []error
	for _, lis := range []net.Listener{s.smtp, s.lmtp} {
		if lis != nil {
			errs = append(errs, closed(lis.Close()))
		}
	}
	if server != nil {
		errs = append(errs, closed(server.Close()))
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// closed is nil for what was closed already, as by a second Close.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
