package gateway_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/rohrpost/rohrpost/gateway"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// proxied starts a gateway that believes PROXY headers from a network.
func proxied(t *testing.T, from netip.Prefix, change func(*gateway.Config)) *edge {
	t.Helper()
	return start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.Listeners[0].ProxyFrom, c.Accept.Domains = []netip.Prefix{from}, patterns("x.test")
		if change != nil {
			change(c)
		}
	}})
}

// header is a PROXY header for a client.
func header(t *testing.T, version byte, client string) string {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client)),
		net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::25]:25")))
	if strings.HasPrefix(client, "1") {
		h.DestinationAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 25), Port: 25}
		h.TransportProtocol = proxyproto.TCPv4
	}
	raw, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Case D15: a PROXY header says who the client is, in one packet or in several, where a trusted network sends it.
func TestProxyHeader(t *testing.T) {
	local, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}).Format()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		raw  string
		cut  int // where it is cut into two packets
		want string
	}{
		"v1":               {header(t, 1, "192.0.2.7:4711"), 0, "192.0.2.7"},
		"v1 in two":        {header(t, 1, "192.0.2.7:4711"), 9, "192.0.2.7"},
		"v1, IPv6":         {header(t, 1, "[2001:db8::7]:4711"), 0, "2001:db8::7"},
		"v1, unknown":      {"PROXY UNKNOWN\r\n", 0, "127.0.0.1"},
		"v2":               {header(t, 2, "192.0.2.7:4711"), 0, "192.0.2.7"},
		"v2 in two":        {header(t, 2, "192.0.2.7:4711"), 14, "192.0.2.7"},
		"v2, health check": {string(local), 0, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := proxied(t, loopback, nil)
			d := e.dialRaw(t)
			d.send(c.raw[:c.cut])
			d.send(c.raw[c.cut:] + "EHLO c.test\r\n") // a client that is not patient
			d.want("220 ")
			d.want("250-")
			d.cmd("MAIL FROM:<>", "250 ")
			d.cmd("RCPT TO:<a@x.test>", "250 ")
			d.cmd("DATA", "354 ")
			d.cmd("x\r\n.", "250 ")
			if got := e.spool.all()[0].sub.Envelope.GetReception().GetClientIp(); got != c.want {
				t.Errorf("client %s, want %s", got, c.want)
			}
		})
	}
}

// Case D15: without its header, or with one that can't be read, a trusted balancer's connection ends.
func TestProxyHeaderMissing(t *testing.T) {
	for name, raw := range map[string]string{"none": "EHLO c.test\r\n", "broken v1": "PROXY TCP4 nonsense\r\n", "half": "PROXY TCP4 1"} {
		t.Run(name, func(t *testing.T) {
			e := proxied(t, loopback, nil)
			d := e.dialRaw(t)
			d.send(raw)
			if err := d.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			d.wantClosed()
			if !strings.Contains(e.logs.String(), "no PROXY header") {
				t.Error("no log line")
			}
		})
	}
}

// Case D15: anybody else's header is not believed, and nothing behind it counts as commands.
func TestProxyHeaderFromStranger(t *testing.T) {
	e := proxied(t, netip.MustParsePrefix("192.0.2.0/24"), nil)
	d := e.dial(t)
	d.send(header(t, 1, "192.0.2.7:4711") + "EHLO c.test\r\n")
	d.want("502 5.7.0")
	d.wantClosed()
	d = e.dial(t)
	d.send(header(t, 2, "192.0.2.7:4711"))
	d.want("500 ")
}

// A cap on the sessions of one client address; an IPv6 client is its /64, loopback and own networks have no cap.
func TestMaxSessionsPerClient(t *testing.T) {
	e := proxied(t, loopback, func(c *gateway.Config) {
		c.MaxSessionsPerClient, c.Relay.Networks = 2, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	dial := func(client string) *dialog {
		d := e.dialRaw(t)
		d.send(header(t, 1, client))
		return d
	}
	for _, two := range [][3]string{
		{"192.0.2.7:1", "192.0.2.7:2", "192.0.2.7:3"},
		{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::ffff:1]:1"},
	} {
		first := dial(two[0])
		first.want("220 ")
		dial(two[1]).want("220 ")
		third := dial(two[2])
		third.want("421 4.7.0 mx.test Too many sessions from your address")
		third.wantClosed()
		first.cmd("QUIT", "221 ")
		waitFor(t, "the place", func() bool { return strings.HasPrefix(dial(two[2]).reply(), "220 ") })
	}
	dial("192.0.2.8:1").want("220 ")
	dial("[2001:db8:0:1::1]:1").want("220 ")
	for range 5 {
		dial("127.0.0.1:99").want("220 ")
		dial("198.51.100.1:99").want("220 ")
	}
}

// Caps on commands and refusals; a message that is accepted starts them anew.
func TestSessionCaps(t *testing.T) {
	message := func(d *dialog) {
		d.envelope()
		d.cmd("DATA", "354 ")
		d.cmd(".", "250 ")
	}
	t.Run("commands", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxCommands = 5 }}).dial(t)
		for range 3 {
			d.cmd("NOOP", "250 ")
			message(d)
		}
		for range 5 {
			d.cmd("RSET", "250 ")
		}
		d.cmd("NOOP", "421 4.7.0 mx.test Too many commands")
		d.wantClosed()
	})
	t.Run("errors", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxErrors = 3 }}).dial(t)
		for range 2 {
			d.cmd("EHLO c.test", "250-")
			for range 3 {
				d.cmd("RCPT TO:<x@x.test>", "503 ")
			}
			message(d)
		}
		for range 3 {
			d.cmd("MAIL FROM:<bad>", "501 ")
		}
		d.cmd("MAIL FROM:<bad>", "501 ")
		d.want("421 4.7.0 mx.test Too many errors")
		d.wantClosed()
	})
	t.Run("in BDAT", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxErrors = 2 }}).dial(t)
		d.envelope()
		d.send("BDAT 1\r\nx")
		d.want("250 ")
		for range 2 {
			d.cmd("DATA", "503 ")
		}
		d.cmd("DATA", "503 ")
		d.want("421 4.7.0 mx.test Too many errors")
		d.wantClosed()
	})
	t.Run("large chunks are no commands", func(t *testing.T) {
		d := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxCommands = 5 }}).dial(t)
		d.envelope()
		for range 20 {
			d.send("BDAT 1024\r\n" + strings.Repeat("x", 1022) + "\r\n")
			d.want("250 ")
		}
		d.cmd("BDAT 0 LAST", "250 ")
		d.envelope()
		for range 2 {
			d.send("BDAT 2\r\n\r\n")
			d.want("250 ")
		}
		d.cmd("BDAT 0", "421 4.7.0 mx.test Too many commands")
		d.wantClosed()
	})
}
