package gateway

import (
	"bytes"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"
)

// proxyBuffer has room for a PROXY header without exotic extensions, which is read in pieces.
const proxyBuffer = 256

// behindBalancer is a connection that must begin with a PROXY header within a time.
func behindBalancer(nc net.Conn, timeout time.Duration) *proxyproto.Conn {
	return proxyproto.NewConn(&whole{Conn: nc}, proxyproto.WithPolicy(proxyproto.REQUIRE),
		proxyproto.SetReadHeaderTimeout(timeout), proxyproto.WithBufferSize(proxyBuffer))
}

// clientOf waits for the header and returns whom it names; ok is false where there is none that can be read, or where it
// is not about TCP. LOCAL and UNKNOWN headers, as of health checks, leave the balancer's own address. (Case D15.)
func clientOf(c *proxyproto.Conn) (addr netip.AddrPort, ok bool) {
	if c.ProxyHeader() == nil {
		return addr, false
	}
	addr = addrOf(c.RemoteAddr())
	return addr, addr.IsValid()
}

// whole is a balancer's connection whose first read has all of a version 1 PROXY header, though it came in several packets:
// go-proxyproto takes one that is not there at once for an attack. The deadline of the header bounds the wait.
type whole struct {
	net.Conn
	read bool
}

// signature begins a PROXY header of version 1, and maxHeader is how many octets one has at most.
const (
	signature = "PROXY "
	maxHeader = 107
)

// Read implements net.Conn.
func (w *whole) Read(p []byte) (int, error) {
	if w.read {
		return w.Conn.Read(p)
	}
	w.read = true
	n, err := w.Conn.Read(p)
	for err == nil && n < len(p) && part(p[:n]) {
		var more int
		more, err = w.Conn.Read(p[n:])
		n += more
	}
	return n, err
}

// CloseWrite lets the session's end linger.
func (w *whole) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// part tells whether a version 1 header has begun and not ended.
func part(b []byte) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == signature[:n] && len(b) < maxHeader && !bytes.Contains(b, []byte("\n"))
}
