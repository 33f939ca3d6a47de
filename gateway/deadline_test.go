package gateway_test

import (
	"context"
	"io"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

const (
	short = 50 * time.Millisecond
	told  = "421 4.4.2 mx.test " // what a client that takes too long gets
)

// deadlineCase makes one deadline fire.
type deadlineCase struct {
	key    string // of gateway.timeouts
	name   string
	change func(*gateway.Config)
	raw    bool // the greeting does not come
	play   func(*edge, *dialog)
	want   string // empty: nothing is said
}

func deadlineCases() []deadlineCase {
	timeout := func(set func(*gateway.Timeouts)) func(*gateway.Config) {
		return func(c *gateway.Config) { set(&c.Timeouts) }
	}
	half := func(raw string) func(*edge, *dialog) {
		return func(_ *edge, d *dialog) {
			d.envelope()
			d.send(raw)
			if strings.HasPrefix(raw, "DATA") {
				d.want("354 ")
			}
		}
	}
	return []deadlineCase{
		{key: "command", name: "idle", change: timeout(func(t *gateway.Timeouts) { t.Command = short }), want: told},
		{
			key: "command", name: "half a line", change: timeout(func(t *gateway.Timeouts) { t.Command = short }), want: told,
			play: func(_ *edge, d *dialog) { d.send("NOO") },
		},
		{
			key: "command", name: "octet by octet", change: timeout(func(t *gateway.Timeouts) { t.Command = 4 * short }), want: told,
			play: func(_ *edge, d *dialog) {
				for range 20 {
					time.Sleep(short)
					if _, err := io.WriteString(d, "x"); err != nil {
						return
					}
				}
			},
		},
		{
			key: "session", name: "a busy one", change: timeout(func(t *gateway.Timeouts) { t.Session = 40 * short }), want: told,
			play: func(_ *edge, d *dialog) { d.cmd("NOOP", "250 ") },
		},
		{
			key: "proxy", name: "no header", raw: true,
			change: func(c *gateway.Config) {
				c.Timeouts.Proxy = short
				c.Listeners[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			},
		},
		{
			key: "handshake", name: "silence", change: timeout(func(t *gateway.Timeouts) { t.Handshake = short }),
			play: func(_ *edge, d *dialog) { d.cmd("STARTTLS", "220 ") },
		},
		{
			key: "handshake", name: "silence from the start", raw: true,
			change: func(c *gateway.Config) {
				c.Timeouts.Handshake, c.Listeners[0].Kind = short, gateway.KindSubmissions
				c.Auth.Users = os.DevNull
			},
		},
		{key: "data", name: "DATA", change: timeout(func(t *gateway.Timeouts) { t.Data = short }), play: half("DATA\r\nx\r\n"), want: told},
		{key: "data", name: "BDAT", change: timeout(func(t *gateway.Timeouts) { t.Data = short }), play: half("BDAT 100 LAST\r\nx\r\n"), want: told},
		{key: "data_total", name: "DATA", change: timeout(func(t *gateway.Timeouts) { t.DataTotal = short }), play: half("DATA\r\nx\r\n"), want: told},
		{
			key: "directory", name: "directory hangs", want: "451 4.3.0",
			change: func(c *gateway.Config) {
				c.Timeouts.Directory, c.Accept.Domains = short, patterns("ours.test")
			},
			play: func(_ *edge, d *dialog) {
				d.envelope()
				d.send("RCPT TO:<slow@ours.test>\r\nQUIT\r\n")
			},
		},
		{
			key: "memory", name: "others hold it", want: "452 4.3.1",
			change: func(c *gateway.Config) { c.Timeouts.Memory, c.MaxMemory = short, 1<<20 },
			play: func(e *edge, d *dialog) {
				for range 2 {
					e.dial(d.t).hold()
				}
				e.spool.waitStarted(d.t, 2)
				d.envelope()
				d.cmd("DATA", "354 ")
				d.send(manyLines + ".\r\nQUIT\r\n")
			},
		},
		{
			key: "write", name: "client reads nothing",
			change: func(c *gateway.Config) { c.Timeouts.Write, c.MaxCommands = 10*short, 0 },
			play:   func(_ *edge, d *dialog) { d.flood() },
		},
		{
			key: "submit", name: "spool hangs", change: timeout(func(t *gateway.Timeouts) { t.Submit = short }), want: "451 4.4.2",
			play: func(e *edge, d *dialog) {
				e.spool.answer = func(ctx context.Context, _ *gateway.Submission) error {
					<-ctx.Done()
					return ctx.Err()
				}
				d.envelope()
				d.send("DATA\r\nx\r\n.\r\nQUIT\r\n")
				d.want("354 ")
			},
		},
		{
			key: "shutdown", name: "message under way", change: timeout(func(t *gateway.Timeouts) { t.Shutdown = short }),
			play: func(e *edge, d *dialog) {
				half("DATA\r\nx\r\n")(e, d)
				e.halt()
			},
		},
	}
}

// Every deadline of gateway.timeouts fires, is told where there is somebody to tell, and what was under way is not
// accepted. (RFC 5321, section 4.5.3.2.)
func TestEveryDeadline(t *testing.T) {
	section := newAuthority(t).section(t, "mx.test")
	tried := map[string]bool{}
	for _, c := range deadlineCases() {
		tried[c.key] = true
		t.Run(c.key+", "+c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{directory: fakeDirectory{}, change: func(cfg *gateway.Config) {
				cfg.TLS = section
				c.change(cfg)
			}})
			d := e.dialRaw(t)
			if !c.raw {
				d.want("220 mx.test ")
			}
			if c.play != nil {
				c.play(e, d)
			}
			if c.want != "" {
				d.want(c.want)
			}
			d.wantEnd()
			if n := len(e.spool.all()); n != 0 {
				t.Errorf("%d messages stored", n)
			}
		})
	}
	for f := range reflect.TypeFor[gateway.Timeouts]().NumField() {
		if key := reflect.TypeFor[gateway.Timeouts]().Field(f).Tag.Get("yaml"); !tried[key] {
			t.Errorf("gateway.timeouts.%s is never made to fire", key)
		}
	}
}

// A client that sends content more slowly than min_rate is told so, though it never pauses for long; one that is fast
// enough, or waits for a slow spool, is not.
func TestMinRate(t *testing.T) {
	slow := func(c *gateway.Config) { c.MinRate, c.Timeouts.Data = 10_000, 20*short }
	t.Run("drip", func(t *testing.T) {
		e := startTLS(t, gateway.TLS{}, slow)
		d := e.dial(t)
		d.envelope()
		d.cmd("DATA", "354 ")
		err := d.SetWriteDeadline(time.Time{})                                 // else it would end the loop in place of the gateway
		for begun := time.Now(); err == nil && time.Since(begun) < patience; { // 20 octets a second, each in time for timeouts.data
			time.Sleep(short)
			_, err = io.WriteString(d, "x")
		}
		if err == nil {
			t.Fatal("it may go on for ever")
		}
		d.want(told)
		d.wantEnd()
	})
	t.Run("fast", func(t *testing.T) {
		e := startTLS(t, gateway.TLS{}, slow)
		d := e.dial(t)
		d.envelope()
		d.cmd("DATA", "354 ")
		for range 20 { // two seconds would be too long but for the rate
			time.Sleep(2 * short)
			d.send(strings.Repeat("x", 4998) + "\r\n")
		}
		d.send(".\r\n")
		d.want("250 ")
	})
	t.Run("slow spool", func(t *testing.T) {
		e := startTLS(t, gateway.TLS{}, slow)
		e.spool.pause = 40 * short
		d := e.dial(t)
		d.envelope()
		d.cmd("DATA", "354 ")
		d.send(strings.Repeat(strings.Repeat("x", 98)+"\r\n", 2*gateway.InlineLimit/100) + ".\r\n")
		d.want("250 ")
	})
}

// A client that talks before the greeting is turned away; one that waits is greeted.
func TestEarlyTalker(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.GreetDelay = 20 * short }})
	early := e.dialRaw(t)
	early.send("EHLO c.test\r\nMAIL FROM:<>\r\n")
	early.want("554 5.5.1 mx.test ")
	early.wantEnd()
	gone := e.dialRaw(t)
	gone.Close()
	began := time.Now()
	d := e.dial(t)
	if waited := time.Since(began); waited < 2*short {
		t.Errorf("greeted after %s", waited)
	}
	d.cmd("EHLO c.test", "250-")
	if !strings.Contains(e.logs.String(), "talked before the greeting") {
		t.Error("no log line")
	}
	haltSession(t, func(c *gateway.Config) { c.GreetDelay = time.Minute })
}

// haltSession sees that a gateway's shutdown reaches a session that waits before its greeting.
func haltSession(t *testing.T, change func(*gateway.Config)) {
	t.Helper()
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.MaxSessions = 1
		change(c)
	}})
	waiting := e.dialRaw(t)
	e.dialRaw(t).want("421 4.3.2") // so that the first is a session by now
	time.Sleep(10 * short)         // and most likely waits
	e.halt()
	waiting.want("220 ")
	waiting.want("421 4.3.2")
}

// Each reply is late by reply_delay, those of a pipelined group as well; a shutdown does not wait for it.
func TestReplyDelay(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.ReplyDelay = short }})
	began := time.Now()
	d := e.dial(t)
	d.cmd("EHLO c.test", "250-")
	if took := time.Since(began); took < 2*short {
		t.Errorf("two replies after %s", took)
	}
	began = time.Now()
	d.send("NOOP\r\nNOOP\r\nNOOP\r\n")
	d.want("250 ")
	if took := time.Since(began); took < 3*short {
		t.Errorf("three replies after %s", took)
	}
	haltSession(t, func(c *gateway.Config) { c.ReplyDelay = time.Minute })
}
