package gen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
)

// dialer makes connections, from more source addresses when ports run short.
type dialer struct {
	cfg     *Config
	local   bool         // the target is on loopback, whose every address is ours
	sources atomic.Int32 // addresses in use
	next    atomic.Uint32
}

// maxSources bounds the addresses taken: each has some 28 000 ports.
const maxSources = 32

func newDialer(cfg *Config) *dialer {
	d := &dialer{cfg: cfg}
	host, _, _ := net.SplitHostPort(cfg.Target)
	addr, err := netip.ParseAddr(host)
	d.local = host == "localhost" || err == nil && addr.Unmap().Is4() && addr.IsLoopback()
	d.sources.Store(int32(min(cfg.Sources, maxSources)))
	return d
}

// dial connects. TLS, where it is implicit, is not yet spoken.
func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	for {
		n := d.sources.Load()
		conn, err := d.from(ctx, n)
		if d.local && n < maxSources && errors.Is(err, syscall.EADDRNOTAVAIL) {
			d.sources.CompareAndSwap(n, n+1)
			continue
		}
		return conn, err
	}
}

func (d *dialer) from(ctx context.Context, sources int32) (net.Conn, error) {
	nd := net.Dialer{KeepAlive: -1}
	if d.local && sources > 1 {
		last := byte(1 + d.next.Add(1)%uint32(sources))
		nd.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}
		nd.Control = lateBind
	}
	return nd.DialContext(ctx, "tcp", d.cfg.Target)
}

func (d *dialer) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	secure := tls.Client(conn, d.cfg.TLSConfig)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure, nil
}
