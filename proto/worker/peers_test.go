package worker_test

import (
	"context"
	"net"
	"testing"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

func TestPeersShareTheCapacity(t *testing.T) {
	b := &fakeSpool{name: "b"}
	a := &fakeSpool{name: "a", peers: []string{serve(t, b)}}
	sa, _ := start(t, a, spoolv1.Stage_STAGE_DELIVER, 4, func(context.Context, *worker.Job) (*spoolv1.Result, error) {
		return delivered(), nil
	}, worker.WithDialer(dial))
	if n := next(t, sa, credits); n != 4 {
		t.Fatalf("alone, the first spool got %d credits, want 4", n)
	}
	sb := stream(t, b)
	if n := next(t, sb, credits); n != 2 {
		t.Errorf("the second spool got %d credits, want its half", n)
	}
	// The first spool has 4 credits still; used-up ones come back only down to its share.
	for _, token := range []string{"t1", "t2"} {
		sa.job(token, &spoolv1.Job{})
		sa.give(ack(next(t, sa, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	}
	sa.job("t3", &spoolv1.Job{})
	got := next(t, sa, func(f *spoolv1.WorkerFrame) (*spoolv1.WorkerFrame, bool) { return f, true })
	if got.GetResult() == nil {
		t.Errorf("got %v before the share was reached, want no credits", got)
	}
	sa.give(ack([]byte("t3"), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
}

// A spool that dies and comes back before the others miss it is not announced again: its worker must come back by itself.
func TestRestartedPeerIsFoundAgain(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	b := &fakeSpool{name: "b", streams: make(chan *fakeStream, 10)}
	die := serveOn(t, b, ln)
	a := &fakeSpool{name: "a", peers: []string{address}}
	start(t, a, spoolv1.Stage_STAGE_DELIVER, 4, func(context.Context, *worker.Job) (*spoolv1.Result, error) {
		return delivered(), nil
	}, worker.WithDialer(dial))
	stream(t, b).cut()
	die()
	time.Sleep(500 * time.Millisecond) // several tries in vain
	if ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	serveOn(t, b, ln)
	stream(t, b)
}

// Promise P3: a result whose spool is gone for good is presented to those that may take over, one after the other.
func TestResultOfALostSpoolGoesToTheOthers(t *testing.T) {
	a := &fakeSpool{name: "a"}
	c := &fakeSpool{name: "c"}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeSpool{name: "b", streams: make(chan *fakeStream, 10)}
	die := serveOn(t, b, ln)
	a.peers = []string{ln.Addr().String(), serve(t, c)}
	sa, _ := start(t, a, spoolv1.Stage_STAGE_DELIVER, 4, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		return delivered(), job.Permit(ctx)
	}, worker.WithDialer(dial))
	sb, sc := stream(t, b), stream(t, c)
	next(t, sc, credits) // the worker has heard its hello: only then may it take over
	sb.job("t1", &spoolv1.Job{})
	sb.give(permit([]byte("t1"), true))
	next(t, sb, result) // and no acknowledgement
	die()               // at once: a stream that is only cut may be opened again
	for _, s := range []*fakeStream{sc, sa, sc} {
		if res := next(t, s, result); string(res.GetToken()) != "t1" {
			t.Fatalf("got %v, want the result of the lost spool's job", res)
		}
		s.give(ack([]byte("t1"), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_AGAIN))
	}
	s := sa
	next(t, s, result)
	s.give(ack([]byte("t1"), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
}

func drains(f *spoolv1.WorkerFrame) (bool, bool) { return true, f.GetDrain() != nil }

// Promise P3: a worker that drains finds the spool that has taken over its jobs, though it comes to know of it only then.
// Otherwise a stop soon after that of a spool would leave results that nobody hears.
func TestDrainingWorkerMeetsTheHeir(t *testing.T) {
	a, b := &fakeSpool{name: "a"}, &fakeSpool{name: "b"}
	heir := serve(t, b)
	sa, stop := start(t, a, spoolv1.Stage_STAGE_DELIVER, 1, func(context.Context, *worker.Job) (*spoolv1.Result, error) {
		return delivered(), nil
	}, worker.WithDialer(dial))
	sa.job("t1", &spoolv1.Job{})
	next(t, sa, result)
	go stop()
	next(t, sa, drains)
	sa.give(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Hello{Hello: &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: "a", Peers: []string{heir}}}})
	sb := stream(t, b)
	next(t, sb, drains) // the worker has heard its hello: before that nothing is presented there
	sa.give(ack([]byte("t1"), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_AGAIN))
	if res := next(t, sb, result); string(res.GetToken()) != "t1" {
		t.Fatalf("got %v, want the result that is held", res)
	}
	sb.give(ack([]byte("t1"), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	stop()
}
