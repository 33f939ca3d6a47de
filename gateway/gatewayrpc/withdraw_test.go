package gatewayrpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// idle returns a client that is not run, with streams to the named spools on which nothing is sent.
func idle(t *testing.T, spools ...string) *Client {
	t.Helper()
	c, err := New([]grpc.ClientConnInterface{nil}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range spools {
		c.join(&stream{name: name, left: make(chan struct{}), wake: make(chan struct{}, 1)})
	}
	return c
}

func newCall(id string) *call {
	return &call{id: id, size: 1000, begin: &spoolv1.SubmitBegin{Id: id}, deadline: time.Now().Add(time.Hour), answer: make(chan answer, 1)}
}

// ended is a context that has.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// An answer that comes when the client's time ends counts: else a message would be accepted and its client told 451, and
// send it again (promise P3).
func TestAnswerInTheMomentOfWithdrawal(t *testing.T) {
	c := idle(t, "a")
	one := newCall("one")
	if err := c.enqueue(one); err != nil {
		t.Fatal(err)
	}
	c.take(c.streams[0])
	c.resolve(c.streams[0], "one", answer{receipt: gateway.Receipt{SuspectedDuplicateOf: "x"}})
	if got := c.withdraw(ended(t), one); got.err != nil || got.receipt.SuspectedDuplicateOf != "x" {
		t.Errorf("got %v", got)
	}
	if len(c.calls) != 0 {
		t.Errorf("%d calls are kept", len(c.calls))
	}
}

// A message that a spool may have is taken back there, and counts towards what that owes until it answers. One that was not
// sent yet is forgotten.
func TestWithdrawal(t *testing.T) {
	c := idle(t, "a")
	s := c.streams[0]
	for _, sent := range []bool{false, true} {
		one := newCall("one")
		if err := c.enqueue(one); err != nil {
			t.Fatal(err)
		}
		if sent {
			c.take(s)
		}
		if got := c.withdraw(ended(t), one); got.err == nil {
			t.Errorf("sent %t: accepted", sent)
		}
		frames := c.take(s)
		if aborted := len(frames) == 1 && frames[0].GetAbort().GetId() == "one"; aborted != sent || len(frames) > 1 {
			t.Errorf("sent %t: the spool is sent %v", sent, frames)
		}
		if owes := s.frames == 1; owes != sent {
			t.Errorf("sent %t: the spool owes %d answers", sent, s.frames)
		}
		c.resolve(s, "one", answer{err: errUnreachable})
		if len(c.calls) != 0 || s.load() != 0 {
			t.Errorf("sent %t: %d calls are kept, load %d", sent, len(c.calls), s.load())
		}
	}
}

// A message is also taken back where the spool may have it that was lost meanwhile: once that comes back, and before its time is
// over. Else its client, who was told 451, would have sent it twice.
func TestWithdrawalFromLostSpool(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // until the message's deadline
		want int
	}{"in time": {time.Hour, 1}, "late": {-time.Second, 0}} {
		client := idle(t, "a")
		one := newCall("one")
		one.deadline = time.Now().Add(c.left)
		if err := client.enqueue(one); err != nil {
			t.Fatal(err)
		}
		s := client.streams[0]
		client.take(s)
		client.leave(s)
		client.collect(s, true)
		if got := client.withdraw(ended(t), one); got.err == nil {
			t.Fatalf("%s: accepted", name)
		}
		client.tend()
		back := &stream{name: "a", left: make(chan struct{}), wake: make(chan struct{}, 1)}
		client.join(back)
		if frames := client.take(back); len(frames) != c.want || len(frames) > 0 && frames[0].GetAbort().GetId() != "one" {
			t.Errorf("%s: the spool that is back is sent %v", name, frames)
		}
		if len(client.owed) > 0 || len(client.calls) > 0 {
			t.Errorf("%s: %v and %v are kept", name, client.owed, client.calls)
		}
	}
}
