package gatewayrpc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// node is a spool at a port of loopback that can die and come back.
type node struct {
	*fakeSpool
	address string

	// holds tells that answers to messages are kept back until letGo.
	holds atomic.Bool

	mu   sync.Mutex
	held []func() error // what sends the answers that were kept back
	kill func()
}

// start starts a spool that does with messages what on does.
func start(t *testing.T, name string, on func(*serverStream, *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error)) *node {
	t.Helper()
	n := &node{address: "127.0.0.1:0"}
	n.fakeSpool = &fakeSpool{name: name, on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		replies, err := on(s, f)
		if err != nil || !n.holds.Load() {
			return replies, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held = append(n.held, func() error { return s.send(replies...) })
		return nil, nil
	}}
	n.revive(t)
	t.Cleanup(n.die)
	return n
}

// revive starts a dead spool at its address.
func (n *node) revive(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", n.address) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	n.address = l.Addr().String()
	const window = 64 << 10 // what may be under way; left to itself gRPC would let it grow
	server := grpc.NewServer(grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	spoolv1.RegisterSpoolServiceServer(server, n.fakeSpool)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kill = sync.OnceFunc(func() { server.Stop(); <-done })
}

// die breaks all streams and refuses new ones.
func (n *node) die() {
	n.mu.Lock()
	kill := n.kill
	n.mu.Unlock()
	kill()
}

// change changes what the spool does on streams to come.
func (n *node) change(how func(*fakeSpool)) {
	n.fakeSpool.mu.Lock()
	defer n.fakeSpool.mu.Unlock()
	how(n.fakeSpool)
}

// owes tells how many answers the spool has kept back.
func (n *node) owes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.held)
}

// forget drops the answers that were kept back.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = nil
}

// letGo sends the answers that were kept back.
func (n *node) letGo(t *testing.T) {
	t.Helper()
	n.holds.Store(false)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, send := range n.held {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
}

// connect returns a connection that comes back soon after the spool.
func (n *node) connect(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	conn, err := dial(n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dial(address string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Second,
	}))
	return grpc.NewClient(address, opts...)
}

// got returns the messages that the spool was sent, in order.
func (f *fakeSpool) got() (messages []*spoolv1.SubmitMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range slices.Concat(f.batches...) {
		if m := frame.GetMessage(); m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

// times tells how often the spool was sent a message.
func (f *fakeSpool) times(id string) (n int) {
	for _, m := range f.got() {
		if m.GetBegin().GetId() == id {
			n++
		}
	}
	return n
}

// submit submits a message whose client waits no longer than the test.
func submit(t *testing.T, c *gatewayrpc.Client, sub *gateway.Submission) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.Submit(ctx, sub)
	return err
}

// untilBoth submits messages until each of the spools has been sent one, which is when streams to all of them are up.
func untilBoth(t *testing.T, c *gatewayrpc.Client, nodes ...*node) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if err := submit(t, c, small("first\r\n")); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(nodes, func(n *node) bool { return len(n.got()) == 0 }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a spool gets nothing")
		}
	}
	for _, n := range nodes {
		n.change(func(f *fakeSpool) { f.batches = nil })
	}
}

// untilHeld submits messages until a spool keeps an answer back, and returns what waits for the results of all.
func untilHeld(t *testing.T, c *gatewayrpc.Client, n *node) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for deadline := time.Now().Add(patience); n.owes() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the spool gets nothing")
		}
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			if err := submit(t, c, small("held\r\n")); err != nil {
				t.Errorf("Submit: %v", err)
			}
		})
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond):
		}
	}
	return all.Wait
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// database is what spools share: a message is in it once.
type database struct {
	mu   sync.Mutex
	rows map[string]string // id to the spool that made it durable
}

var errDies = errors.New("the spool dies")

// commit makes a message durable; false where it is there already.
func (d *database) commit(id, spool string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.rows[id]; there {
		return false
	}
	if d.rows == nil {
		d.rows = map[string]string{}
	}
	d.rows[id] = spool
	return true
}
