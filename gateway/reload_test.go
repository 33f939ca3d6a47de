package gateway_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// A session goes through a reload: its message is accepted, by the settings it began with. What changed holds for later
// sessions, at the same socket.
func TestReload(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.MaxSize, c.Accept.Domains = 200_000, patterns("old.test")
	}})
	d, idle := e.dial(t), e.dial(t)
	d.cmd("EHLO client.test", "250-mx.test ")
	d.cmd("MAIL FROM:<a@client.test>", "250 2.")
	d.cmd("RCPT TO:<b@old.test>", "250 2.")
	d.cmd("DATA", "354 ")
	d.send("x\r\n")
	e.mustReload(t, func(c *gateway.Config) {
		c.Hostname, c.MaxSize, c.Accept.Domains, c.Relay.Networks = "new.test", 100_000, patterns("new.test"), nil
	})
	d.send("y\r\n.\r\n")
	d.want("250 2.0.0 Ok: queued")
	if got := e.spool.all(); len(got) != 1 || got[0].content != "x\r\ny\r\n" {
		t.Errorf("stored %v", got)
	}
	if got := idle.cmd("EHLO client.test", "250-mx.test "); !strings.Contains(got, "SIZE 200000") {
		t.Errorf("an old session: %q", got)
	}
	idle.cmd("MAIL FROM:<>", "250 ")
	idle.cmd("RCPT TO:<b@old.test>", "250 ")
	later := e.dialRaw(t)
	later.want("220 new.test ")
	if got := later.cmd("EHLO client.test", "250-new.test "); !strings.Contains(got, "SIZE 100000") {
		t.Errorf("a new session: %q", got)
	}
	later.cmd("MAIL FROM:<>", "250 ")
	later.cmd("RCPT TO:<b@old.test>", "550 5.7.1")
	later.cmd("RCPT TO:<b@new.test>", "250 ")
	// The end reaches sessions of both.
	e.halt()
	d.want("421 4.3.2 mx.test ")
	idle.want("421 4.3.2 mx.test ")
	later.want("421 4.3.2 new.test ")
	e.stop()
}

// A new listener opens; one that is removed closes, and its session goes on and is told 421 at the end. The end waits for it.
func TestReloadListeners(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.Listeners = append(c.Listeners, gateway.Listener{Listen: freeAddr(t)})
	}})
	removed, added := e.on(1), freeAddr(t)
	d, stays := removed.dial(t), e.dial(t)
	e.mustReload(t, func(c *gateway.Config) { c.Listeners[1].Listen = added })
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", removed.addr); err == nil {
		conn.Close()
		t.Error("the removed listener takes connections")
	}
	at := *e
	at.addr = added
	at.dial(t).cmd("NOOP", "250 ")
	stays.cmd("NOOP", "250 ")
	e.dial(t).cmd("NOOP", "250 ")
	d.envelope()
	d.cmd("DATA", "354 ")
	e.halt()
	stays.want("421 4.3.2 ")
	select {
	case <-e.done:
		t.Fatal("Run returned with a message of a removed listener under way")
	default:
	}
	d.send("x\r\n.\r\n")
	d.want("250 2.0.0 Ok: queued")
	d.want("421 4.3.2 ")
	e.stop()
	if n := len(e.spool.all()); n != 1 {
		t.Errorf("%d messages stored", n)
	}
}

// freeAddr is an address at which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Listeners change their places in the file, and their sockets stay; a listener's kind changes with the rest.
func TestReloadKeepsSockets(t *testing.T) {
	ca := newAuthority(t)
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.Listeners = []gateway.Listener{{Listen: freeAddr(t)}, {Listen: freeAddr(t), Kind: gateway.KindRelay}}
	}})
	e.mustReload(t, func(c *gateway.Config) {
		c.Listeners[0], c.Listeners[1] = c.Listeners[1], c.Listeners[0]
		c.TLS, c.Relay.Networks = ca.section(t, "mx.test"), nil
	})
	for listener, want := range map[int]string{0: "250 ", 1: "550 5.7.1"} {
		d := e.on(listener).dial(t)
		if got := d.cmd("EHLO c.test", "250-"); !strings.Contains(got, "STARTTLS") {
			t.Errorf("listener %d: %q", listener, got)
		}
		d.cmd("MAIL FROM:<a@client.test>", want)
	}
}

// A configuration that can't be had changes nothing, and the error names the key.
func TestReloadFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		change func(*gateway.Config)
		want   string
	}{
		"invalid":       {func(c *gateway.Config) { c.MaxRecipients = 5 }, "gateway.max_recipients 5 is too small"},
		"too few files": {func(c *gateway.Config) { c.MaxSessions = 1 << 40 }, "gateway.max_sessions 1099511627776 needs"},
		"no recipients": {func(c *gateway.Config) {
			c.Accept.Domains, c.Accept.RecipientsFile = patterns("ours.test"), missing
		}, "gateway.accept.recipients_file: "},
		"no certificate": {func(c *gateway.Config) { c.TLS = tlsOf(missing) }, "gateway.listeners[0].tls: certificate " + missing},
		"no users": {func(c *gateway.Config) {
			c.TLS, c.Auth.Users = newAuthority(t).section(t, "mx.test"), missing
			c.Listeners = append(c.Listeners, gateway.Listener{Listen: "127.0.0.1:0", Kind: gateway.KindSubmission})
		}, "gateway.auth."},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			err := e.reload(t, func(cfg *gateway.Config) {
				cfg.Hostname = "new.test"
				c.change(cfg)
			})
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("Reload: %v", err)
			}
			e.dial(t).cmd("EHLO c.test", "250-mx.test ")
		})
	}
}

func tlsOf(file string) gateway.TLS {
	return gateway.TLS{Certificates: []gateway.Certificate{{Cert: file, Key: file}}}
}

// Where one of several new addresses is taken, the others are given back, and no old one is given up.
func TestReloadAddressTaken(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	free := freeAddr(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = e.reload(t, func(c *gateway.Config) {
		c.Listeners = []gateway.Listener{{Listen: free}, {Listen: taken.Addr().String()}}
	})
	if err == nil || !strings.HasPrefix(err.Error(), "gateway.listeners[1].listen: ") {
		t.Errorf("Reload: %v", err)
	}
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", free)
	if err != nil {
		t.Fatalf("the first new one stays open: %v", err)
	}
	again.Close()
	e.dial(t).cmd("NOOP", "250 ")
}

// Caps count sessions from before a reload and from after it together.
func TestReloadCaps(t *testing.T) {
	full := func(e *edge) {
		t.Helper()
		d := e.dialRaw(t)
		d.want("421 4.3.2 mx.test Too many sessions")
		d.wantClosed()
	}
	t.Run("process", func(t *testing.T) {
		e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
			c.MaxSessions = 3
			c.Listeners = append(c.Listeners, gateway.Listener{Listen: "127.0.0.1:0", Limits: gateway.Limits{MaxSessions: 2}})
		}})
		e.dial(t)
		e.on(1).dial(t)
		e.mustReload(t, func(c *gateway.Config) { c.MaxSize = 100_000 })
		last := e.on(1).dial(t)
		full(e)
		e.mustReload(t, func(c *gateway.Config) { c.MaxSessions = 10 })
		full(e.on(1)) // the listener's cap
		e.dial(t)
		e.mustReload(t, func(c *gateway.Config) { c.MaxSessions = 2 })
		full(e) // there are four
		e.mustReload(t, func(c *gateway.Config) { c.MaxSessions = 10 })
		last.cmd("QUIT", "221 ")
		waitFor(t, "the place", func() bool { return strings.HasPrefix(e.on(1).dialRaw(t).reply(), "220 ") })
	})
	t.Run("client", func(t *testing.T) {
		e := proxied(t, loopback, func(c *gateway.Config) { c.MaxSessionsPerClient = 2 })
		dial := func() *dialog {
			d := e.dialRaw(t)
			d.send(header(t, 1, "192.0.2.7:1"))
			return d
		}
		dial().want("220 ")
		e.mustReload(t, func(c *gateway.Config) { c.MaxSize = 100_000 })
		dial().want("220 ")
		dial().want("421 4.7.0 mx.test Too many sessions from your address")
		e.mustReload(t, func(c *gateway.Config) { c.MaxSessionsPerClient = 3 })
		dial().want("220 ")
		dial().want("421 4.7.0 ")
	})
}

// What clients have done is remembered where the rule is still the same: rates, greylisting and failed passwords.
func TestReloadRemembers(t *testing.T) {
	per := func(per gateway.RatePer, limit int) gateway.Rate {
		return gateway.Rate{Count: gateway.CountMessages, Per: per, Limit: 1, Every: time.Duration(limit) * time.Hour}
	}
	s := startSubmission(t, func(c *gateway.Config) {
		stranger(c)
		for i := range c.Listeners[:2] {
			c.Listeners[i].ProxyFrom = []netip.Prefix{loopback}
		}
		c.Auth.MaxFailures = 1
		c.Rates = []gateway.Rate{per(gateway.PerAddress, 1), per(gateway.PerSenderDomain, 1)}
		c.Greylist = gateway.Greylist{Enabled: true, Delay: time.Hour, Keep: 2 * time.Hour}
	})
	from := func(listener int, client string) *dialog {
		d := s.on(listener).dialRaw(t)
		d.send(header(t, 1, client+":25"))
		d.want("220 ")
		if listener == 1 {
			d.starttls(s.tls)
		}
		d.cmd("EHLO c.test", "250-")
		return d
	}
	d := from(0, "192.0.2.1")
	d.cmd("MAIL FROM:<a@a.test>", "250 ")
	d.cmd("RCPT TO:<u@ours.test>", "451 4.7.1")
	wrong, right := "AUTH PLAIN "+b64("\x00ann@a.test\x00wrong"), "AUTH PLAIN "+b64("\x00ann@a.test\x00secret")
	from(1, "192.0.2.9").cmd(wrong, "535 ")

	s.mustReload(t, func(c *gateway.Config) {
		c.MaxSize, c.Auth.FailureDelay = 100_000, 0
		c.Rates = []gateway.Rate{per(gateway.PerSenderDomain, 1), per(gateway.PerAddress, 1), per(gateway.PerNetwork, 1)}
	})
	from(0, "192.0.2.1").cmd("MAIL FROM:<a@b.test>", "450 4.7.1") // per address
	from(0, "203.0.113.1").cmd("MAIL FROM:<a@a.test>", "450 4.7.1")
	from(1, "192.0.2.8").cmd(right, "454 ") // by name
	from(1, "192.0.2.9").cmd("AUTH PLAIN "+b64("\x00news\x00letters"), "454 ")

	s.mustReload(t, func(c *gateway.Config) {
		c.Auth.MaxFailures, c.Greylist.Delay = 2, time.Nanosecond
		c.Rates = []gateway.Rate{per(gateway.PerAddress, 2)}
	})
	d = from(0, "192.0.2.1")
	d.cmd("MAIL FROM:<a@a.test>", "250 ")
	d.cmd("RCPT TO:<u@ours.test>", "250 ") // its first try was before both reloads
	from(1, "192.0.2.8").cmd(right, "235 ")
}

// A larger budget of memory counts at once, a smaller one as soon as enough has been given back.
func TestReloadMemory(t *testing.T) {
	e := start(t, &fakeSpool{begun: make(chan struct{}, 10)}, startOptions{change: func(c *gateway.Config) {
		c.MaxMemory, c.Timeouts.Memory = 1<<20, time.Minute // room for two streamed messages
	}})
	first, second, third, fourth := e.dial(t), e.dial(t), e.dial(t), e.dial(t)
	for _, d := range []*dialog{first, second, third} {
		d.hold()
	}
	<-e.spool.begun
	<-e.spool.begun
	e.mustReload(t, func(c *gateway.Config) { c.MaxMemory = 2 << 20 })
	<-e.spool.begun
	e.mustReload(t, func(c *gateway.Config) { c.MaxMemory = 1 << 20 })
	fourth.envelope()
	fourth.send("DATA\r\n" + manyLines) // 354 comes with room for its first octets
	first.send(".\r\n")
	first.want("250 ")
	select {
	case <-e.spool.begun:
		t.Fatal("three messages are held")
	case <-time.After(4 * short):
	}
	second.send(".\r\n")
	second.want("250 ")
	fourth.want("354 ")
	<-e.spool.begun
	for _, d := range []*dialog{third, fourth} {
		d.send(".\r\n")
		d.want("250 ")
	}
}

// What can't change is told, and the rest changes.
func TestReloadLater(t *testing.T) {
	e := start(t, &fakeSpool{answer: func(ctx context.Context, _ *gateway.Submission) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(4 * short):
			return nil
		}
	}}, startOptions{})
	e.mustReload(t, func(c *gateway.Config) {
		c.Hostname, c.Timeouts.Shutdown, c.Listeners[0].ReusePort = "new.test", 1, true
	})
	for _, key := range []string{"gateway.timeouts.shutdown", "gateway.listeners[0].reuse_port"} {
		if !strings.Contains(e.logs.String(), `msg="takes effect at the next start" key=`+key+"\n") {
			t.Errorf("nothing is said of %s: %s", key, e.logs.String())
		}
	}
	e.dialRaw(t).want("220 new.test ")
	busy := e.dialRaw(t)
	busy.want("220 new.test ")
	busy.cmd("EHLO c.test", "250-")
	busy.cmd("MAIL FROM:<>", "250 ")
	busy.cmd("RCPT TO:<a@x.test>", "250 ")
	busy.cmd("DATA", "354 ")
	busy.send("x\r\n.\r\n")
	e.spool.waitStarted(t, 1)
	e.halt() // the old time for it holds
	busy.want("250 ")
}

// A gateway that has stopped says so.
func TestReloadWhenStopped(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	e.stop()
	if err := e.reload(t, func(*gateway.Config) { /* as it is */ }); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("Reload: %v", err)
	}
}
