package gateway_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// Each listener has limits of its own, and the gateway's where it says nothing.
func TestListeners(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.MaxSize, c.MaxSessions = 200_000, 3
		c.Listeners = []gateway.Listener{
			{Listen: "127.0.0.1:0"},
			{Listen: "127.0.0.1:0", Limits: gateway.Limits{MaxSize: 100_000, MaxRecipients: 100, MaxSessions: 1}},
		}
	}})
	if len(e.addrs) != 2 {
		t.Fatalf("addresses %v", e.addrs)
	}
	wide, narrow := e.dial(t), e.on(1).dial(t)
	if got := wide.cmd("EHLO c.test", "250-"); !strings.Contains(got, "SIZE 200000") {
		t.Errorf("first listener: %q", got)
	}
	if got := narrow.cmd("EHLO c.test", "250-"); !strings.Contains(got, "SIZE 100000") {
		t.Errorf("second listener: %q", got)
	}
	narrow.cmd("MAIL FROM:<> SIZE=100001", "552 5.3.4")
	narrow.cmd("MAIL FROM:<>", "250 ")
	for range 100 {
		narrow.cmd("RCPT TO:<a@x.test>", "250 ")
	}
	narrow.cmd("RCPT TO:<a@x.test>", "452 4.5.3")
	e.on(1).dialRaw(t).want("421 4.3.2") // the listener's cap
	e.dial(t)
	e.dialRaw(t).want("421 4.3.2") // the process's cap
	e.halt()
	wide.want("421 4.3.2")
	narrow.want("421 4.3.2")
}

// Two gateways share a port, and both get clients.
func TestReusePort(t *testing.T) {
	on := func(addr, name string) startOptions {
		return startOptions{change: func(c *gateway.Config) {
			c.Hostname, c.Listeners = name, []gateway.Listener{{Listen: addr, ReusePort: true}}
		}}
	}
	e := start(t, &fakeSpool{}, on("127.0.0.1:0", "one.test"))
	start(t, &fakeSpool{}, on(e.addr, "two.test"))
	met := map[string]bool{}
	for deadline := time.Now().Add(patience); len(met) < 2; {
		greeting := strings.Fields(e.dialRaw(t).reply())
		met[greeting[1]] = true
		if time.Now().After(deadline) {
			t.Fatalf("met %v only", met)
		}
	}
}

// A process that may open too few files for its sessions does not start.
func TestTooFewFiles(t *testing.T) {
	cfg := gateway.DefaultConfig()
	cfg.Listeners[0].Listen, cfg.MaxSessions = "127.0.0.1:0", 1<<40
	g, err := gateway.New(cfg, &fakeSpool{}, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "gateway.max_sessions 1099511627776 needs") {
		t.Errorf("Listen: %v", err)
	}
}

// What was opened before a listener that fails is closed again.
func TestListenFails(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free.Close()
	cfg := gateway.DefaultConfig()
	cfg.Listeners = []gateway.Listener{{Listen: free.Addr().String()}, {Listen: taken.Addr().String()}}
	g, err := gateway.New(cfg, &fakeSpool{}, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "gateway.listeners[1].listen: ") {
		t.Errorf("Listen: %v", err)
	}
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", free.Addr().String())
	if err != nil {
		t.Fatalf("the first one stays open: %v", err)
	}
	again.Close()
}
