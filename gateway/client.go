package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/gateway/wire"
)

// client is one connection with what belongs to it, until it closes.
type client struct {
	g      *Gateway
	set    *settings // those that the session began with
	port   *port
	socket *socket
	wire   *wire.Conn
	id     string // the session id
	addr   netip.AddrPort
	log    *slog.Logger // says the session's id
	host   netip.Prefix // what counts the session; zero where nothing does
	// proxied is the connection where a load balancer must say whose it is.
	proxied *proxyproto.Conn
	span    trace.Span // smtp.session
	names   []string   // of the client's certificate, where it counts
	tls     string     // version and cipher suite, such as `TLSv1.3 TLS_AES_128_GCM_SHA256`; empty without TLS

	// ctx ends when the connection closes or its work is cancelled. It is kept here since the library's callbacks have
	// no context.
	ctx    context.Context
	cancel context.CancelFunc
}

// admit makes a session of a connection, or returns nil if there must be none.
func (p *port) admit(work context.Context, s *socket, nc net.Conn) *wire.Conn {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping || len(g.clients) >= p.set.cfg.MaxSessions || s.sessions >= p.limits.MaxSessions {
		return nil
	}
	c := &client{
		g: g, set: p.set, port: p, socket: s, id: newSessionID(), addr: addrOf(nc.RemoteAddr()), log: g.log, span: noop.Span{},
	}
	c.ctx, c.cancel = context.WithCancel(work)
	if contains(p.proxies, c.addr.Addr()) {
		c.proxied = behindBalancer(nc, c.set.cfg.Timeouts.Proxy)
		nc = c.proxied
	}
	c.wire = wire.New(nc, p.wire, c)
	g.clients[c.wire] = c
	s.sessions++
	return c.wire
}

// addrOf is an address without zone, and IPv4 as such.
func addrOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap().WithZone(""), tcp.AddrPort().Port())
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// Begin implements wire.Owner.
func (c *client) Begin() string {
	if c.proxied != nil {
		var ok bool
		if c.addr, ok = clientOf(c.proxied); !ok {
			c.g.log.WarnContext(c.ctx, "a load balancer sent no PROXY header that can be read", "address", c.wire.RemoteAddr().String())
			return "421 4.3.5 No PROXY header" // go-proxyproto lets nothing be written without one: the connection just closes
		}
	}
	c.log = c.g.log.With("session", c.id, "client", c.addr.Addr().String())
	if c.g.traced {
		//nolint:spancheck // Closed ends it
		c.ctx, c.span = c.g.tracer.Start(c.ctx, "smtp.session", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(c.attributes()...))
	}
	if !c.countHost() {
		c.log.WarnContext(c.ctx, "connection refused: too many sessions of this client")
		return "421 4.7.0 " + c.set.cfg.Hostname + " Too many sessions from your address, try again later"
	}
	if !c.pass(CountConnections, "", "") {
		return "421 4.7.0 " + c.set.cfg.Hostname + " Too many connections from your address, try again later"
	}
	return ""
}

// countHost counts the session to its client's address and tells whether that may have it.
func (c *client) countHost() bool {
	limit := c.port.limits.MaxSessionsPerClient
	if limit == 0 || !c.addr.IsValid() || c.addr.Addr().IsLoopback() || contains(c.set.cfg.Relay.Networks, c.addr.Addr()) {
		return true
	}
	host := hostOf(c.addr.Addr())
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.g.perHost[host] >= limit {
		return false
	}
	c.g.perHost[host]++
	c.host = host
	return true
}

// hostOf is what counts as one client: an IPv4 address, or an IPv6 /64, which a single customer usually has.
func hostOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // fails for no such number of bits
	return p
}

// Notifies implements wire.Owner. Strangers, whose sender addresses may be anybody's, are not offered notifications of success:
// they would go to people who sent nothing.
func (c *client) Notifies() bool {
	return c.port.submission() || c.port.kind == KindRelay || contains(c.set.cfg.Relay.Networks, c.addr.Addr()) || c.certified()
}

// Early implements wire.Owner.
func (c *client) Early() { c.log.InfoContext(c.ctx, "turned away: talked before the greeting") }

// Secured implements wire.Owner.
func (c *client) Secured(state tls.ConnectionState, dropped int) {
	c.tls = strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1) + " " + tls.CipherSuiteName(state.CipherSuite)
	c.span.SetAttributes(attribute.String("tls.protocol.version", tls.VersionName(state.Version)),
		attribute.String("tls.cipher", tls.CipherSuiteName(state.CipherSuite)))
	cert, err := c.port.tls.verify(state)
	switch {
	case err != nil:
		c.log.InfoContext(c.ctx, "the client's certificate does not count", "error", err)
	case cert != nil:
		c.span.SetAttributes(attribute.String("tls.client.subject", cert.Subject.String()))
		c.log.InfoContext(c.ctx, "the client has a certificate", "names", cert.DNSNames)
		c.names = cert.DNSNames
	}
	if dropped > 0 {
		c.log.WarnContext(c.ctx, "dropped what the client sent behind STARTTLS", "octets", dropped)
	}
}

// Failed implements wire.Owner.
func (c *client) Failed(err error) { c.log.InfoContext(c.ctx, "TLS handshake failed", "error", err) }

// Closed implements wire.Owner.
func (c *client) Closed() {
	if refused := c.wire.Refusals(); len(refused) > 0 {
		c.span.SetAttributes(attribute.StringSlice("rohrpost.smtp.refusals", refused))
		c.log.InfoContext(c.ctx, "session had refusals", "refusals", refused)
	}
	c.cancel()
	c.span.End()
	c.g.mu.Lock()
	delete(c.g.clients, c.wire)
	if c.host.IsValid() {
		if c.g.perHost[c.host]--; c.g.perHost[c.host] == 0 {
			delete(c.g.perHost, c.host)
		}
	}
	c.socket.sessions--
	c.g.mu.Unlock()
}

// turnAway refuses a connection. (RFC 5321, section 3.8; RFC 3463, X.3.2.)
func (p *port) turnAway(ctx context.Context, nc net.Conn) {
	p.g.log.WarnContext(ctx, "connection refused: too many sessions or stopping",
		"client", nc.RemoteAddr().String())
	// The write never waits: the socket's buffer is empty.
	if nc.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = nc.Write([]byte("421 4.3.2 " + p.set.cfg.Hostname + " Too many sessions, try again later\r\n"))
	}
	_ = nc.Close() // nothing to be done about it
}

// continues tells whether the client may continue a trace of its own.
func (c *client) continues() bool {
	return contains(c.set.cfg.TrustTraceparent, c.addr.Addr())
}

// attributes are on the session's and on each transaction's span.
func (c *client) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("rohrpost.session.id", c.id),
		attribute.String("client.address", c.addr.Addr().String()),
		attribute.Int("client.port", int(c.addr.Port())),
		attribute.String("server.address", c.set.cfg.Hostname),
		attribute.String("network.transport", "tcp"),
		attribute.String("network.protocol.name", "smtp"),
	}
}
