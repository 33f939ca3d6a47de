package gatewayrpc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// watchedConn tells whether it was closed.
type watchedConn struct {
	grpc.ClientConnInterface
	closed atomic.Bool
}

func (c *watchedConn) Close() error { c.closed.Store(true); return nil }

// A gateway knows one name, at which the spool that stops still answers: it goes to one that this spool told of. A large
// message that began there ends there, though another spool has taken over.
func TestPeerTakesOver(t *testing.T) {
	drained := make(chan struct{})
	var once sync.Once // a second frame may come before the drain is read
	stopping := &fakeSpool{peers: []string{"b:1"}, on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if s.number > 1 {
			return nil, errors.New("I stop")
		}
		defer once.Do(func() { close(drained) })
		if err := s.send(&spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Drain{Drain: &spoolv1.Drain{}}}); err != nil {
			return nil, err
		}
		return acceptAll(s, f)
	}}
	var leave atomic.Pointer[serverStream]
	staying := &fakeSpool{on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		leave.CompareAndSwap(nil, s)
		return acceptAll(s, f)
	}}
	peer := &watchedConn{ClientConnInterface: serve(t, staying)}
	c := client(t, gatewayrpc.Options{Dial: func(address string) (gatewayrpc.Conn, error) {
		if address != "b:1" {
			t.Errorf("dialled %s", address)
		}
		return peer, nil
	}}, serve(t, stopping))
	if _, err := c.Submit(t.Context(), small("x\r\n")); err != nil {
		t.Fatal(err)
	}
	<-drained
	deadline := time.Now().Add(patience)
	for leave.Load() == nil { // what is sent before the drain has been read is not taken
		if time.Now().After(deadline) {
			t.Fatal("the peer is not used")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _ = c.Submit(ctx, small("y\r\n"))
		cancel()
	}
	if _, err := c.Submit(t.Context(), large(strings.NewReader("z\r\n"))); err != nil {
		t.Error(err)
	}
	if peer.closed.Load() {
		t.Error("the connection was closed while it was used")
	}
	if err := leave.Load().send(&spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Drain{Drain: &spoolv1.Drain{}}}); err != nil {
		t.Fatal(err)
	}
	for !peer.closed.Load() {
		if time.Sleep(time.Millisecond); time.Now().After(deadline) {
			t.Fatal("the connection to the peer is never closed")
		}
	}
}
