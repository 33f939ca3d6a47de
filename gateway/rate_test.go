package gateway_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/proto/bytesize"
)

// Each kind of rate refuses what is above it with a 4xx, lets others pass, and forgives with time.
func TestRates(t *testing.T) {
	rate := func(count gateway.RateCount, per gateway.RatePer, limit bytesize.Size) func(*gateway.Config) {
		return func(c *gateway.Config) {
			stranger(c)
			c.Listeners[1].ProxyFrom, c.Listeners[0].ProxyFrom = []netip.Prefix{loopback}, []netip.Prefix{loopback}
			c.Rates = []gateway.Rate{{Count: count, Per: per, Limit: limit, Every: time.Hour}}
		}
	}
	from := func(s *submission, client string) *dialog {
		d := s.dialRaw(t)
		d.send(header(t, 1, client+":25"))
		return d
	}
	message := func(d *dialog, sender string) string {
		d.send("EHLO c.test\r\nMAIL FROM:<" + sender + ">\r\n")
		d.want("250-")
		if reply := d.reply(); !strings.HasPrefix(reply, "250 ") {
			return reply
		}
		d.cmd("RCPT TO:<u@ours.test>", "250 ")
		d.cmd("DATA", "354 ")
		d.cmd("x\r\n.", "250 ")
		return "250 "
	}
	want := func(t *testing.T, got, prefix string) {
		t.Helper()
		if !strings.HasPrefix(got, prefix) {
			t.Errorf("reply %q, want %q", got, prefix)
		}
	}
	t.Run("connections per address", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountConnections, gateway.PerAddress, 2))
		from(s, "192.0.2.1").want("220 ")
		from(s, "192.0.2.1").want("220 ")
		from(s, "192.0.2.1").want("421 4.7.0 mx.test Too many connections")
		from(s, "192.0.2.2").want("220 ")
	})
	t.Run("connections per network", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountConnections, gateway.PerNetwork, 2))
		from(s, "[2001:db8:0:1::1]").want("220 ")
		from(s, "[2001:db8:0:2::1]").want("220 ")
		from(s, "[2001:db8:0:3::1]").want("421 4.7.0")
		from(s, "[2001:db8:1:1::1]").want("220 ")
	})
	t.Run("messages per address", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountMessages, gateway.PerAddress, 2))
		d := from(s, "192.0.2.1")
		d.want("220 ")
		want(t, message(d, "a@a.test"), "250 ")
		want(t, message(d, "b@b.test"), "250 ")
		want(t, message(d, "c@c.test"), "450 4.7.1")
	})
	t.Run("messages per sender domain", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountMessages, gateway.PerSenderDomain, 2))
		d := from(s, "192.0.2.1")
		d.want("220 ")
		want(t, message(d, "a@a.test"), "250 ")
		want(t, message(d, "b@A.test"), "250 ")
		want(t, message(d, "c@a.test"), "450 4.7.1")
		want(t, message(d, "c@b.test"), "250 ")
		want(t, message(d, ""), "250 ")
	})
	t.Run("recipients per address", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountRecipients, gateway.PerAddress, 2))
		d := from(s, "192.0.2.1")
		d.want("220 ")
		d.cmd("EHLO c.test", "250-")
		d.cmd("MAIL FROM:<a@a.test>", "250 ")
		d.cmd("RCPT TO:<a@ours.test>", "250 ")
		d.cmd("RCPT TO:<b@ours.test>", "250 ")
		d.cmd("RCPT TO:<c@ours.test>", "450 4.7.1")
		d.cmd("DATA", "354 ") // for those before it
		d.cmd(".", "250 ")
	})
	t.Run("bytes per network", func(t *testing.T) {
		s := startSubmission(t, rate(gateway.CountBytes, gateway.PerNetwork, 1))
		d := from(s, "192.0.2.1")
		d.want("220 ")
		want(t, message(d, "a@a.test"), "250 ") // known only at its end
		want(t, message(d, "a@a.test"), "450 4.7.1")
	})
	t.Run("messages per user", func(t *testing.T) {
		s := startSubmission(t, func(c *gateway.Config) {
			rate(gateway.CountMessages, gateway.PerUser, 2)(c)
			c.Listeners[1].ProxyFrom = nil
		})
		d := s.secure(t)
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "235 ")
		want(t, message(d, "ann@a.test"), "250 ")
		want(t, message(d, "ann@a.test"), "250 ")
		want(t, message(d, "ann@a.test"), "450 4.7.1")
		other := s.secure(t)
		other.cmd("AUTH PLAIN "+b64("\x00news\x00letters"), "235 ")
		want(t, message(other, "x@news.test"), "250 ")
	})
	t.Run("forgiven with time", func(t *testing.T) {
		s := startSubmission(t, func(c *gateway.Config) {
			rate(gateway.CountConnections, gateway.PerAddress, 2)(c)
			c.Rates[0].Every = 8 * short
		})
		from(s, "192.0.2.1").want("220 ")
		from(s, "192.0.2.1").want("220 ")
		waitFor(t, "another connection", func() bool { return strings.HasPrefix(from(s, "192.0.2.1").reply(), "220 ") })
	})
	t.Run("own networks are not counted", func(t *testing.T) {
		s := startSubmission(t, func(c *gateway.Config) {
			rate(gateway.CountConnections, gateway.PerAddress, 2)(c)
			c.Relay.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		})
		for range 5 {
			from(s, "192.0.2.1").want("220 ")
		}
	})
}

// The first try of a stranger is put off, a later one passes, and trusted clients are never asked.
func TestGreylist(t *testing.T) {
	e := proxied(t, loopback, func(c *gateway.Config) {
		stranger(c)
		c.Greylist = gateway.Greylist{Enabled: true, Delay: 60 * short, Keep: time.Hour}
		c.Relay.Networks = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	try := func(client, sender, rcpt string) string {
		d := e.dialRaw(t)
		defer d.Close()
		d.send(header(t, 1, client+":25"))
		d.want("220 ")
		d.cmd("EHLO c.test", "250-")
		d.cmd("MAIL FROM:<"+sender+">", "250 ")
		d.send("RCPT TO:<" + rcpt + ">\r\n")
		return d.reply()
	}
	if got := try("192.0.2.1", "a@a.test", "u@ours.test"); !strings.HasPrefix(got, "451 4.7.1") {
		t.Errorf("first try: %q", got)
	}
	if got := try("192.0.2.1", "a@a.test", "u@ours.test"); !strings.HasPrefix(got, "451 4.7.1") {
		t.Errorf("at once again: %q", got)
	}
	waitFor(t, "the delay", func() bool { return strings.HasPrefix(try("192.0.2.77", "A@a.test", "u@ours.test"), "250 ") })
	for _, other := range [][3]string{
		{"192.0.2.1", "b@a.test", "u@ours.test"}, {"192.0.2.1", "a@a.test", "v@ours.test"}, {"203.0.113.1", "a@a.test", "u@ours.test"},
	} {
		if got := try(other[0], other[1], other[2]); !strings.HasPrefix(got, "451 4.7.1") {
			t.Errorf("%v: %q", other, got)
		}
	}
	if got := try("198.51.100.1", "a@a.test", "u@ours.test"); !strings.HasPrefix(got, "250 ") {
		t.Errorf("own network: %q", got)
	}
	if got := try("192.0.2.1", "a@a.test", "nobody@else.test"); !strings.HasPrefix(got, "550 5.7.1") {
		t.Errorf("what is refused is not put off: %q", got)
	}
}
