package gatewayrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// submitStream is a Submit call.
type submitStream = grpc.BidiStreamingClient[spoolv1.SubmitRequest, spoolv1.SubmitResponse]

// stream is one Submit call. One goroutine sends and another receives.
type stream struct {
	rpc      submitStream
	spool    *target
	cancel   context.CancelCauseFunc // ends the call
	patience time.Duration           // how long a send may take
	stalled  atomic.Bool             // one took longer
	drained  chan struct{}           // closed when the spool wants nothing new
	drain    sync.Once
	finished chan struct{} // closed when nothing more is answered on it
}

// connect opens a stream to a spool and exchanges hellos. The caller calls the stream's cancel when done with it.
func (c *Client) connect(ctx context.Context, spool *target) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.opts.HelloTimeout, func() { cancel(errors.New("no hello in time")) })
	rpc, err := spool.Submit(ctx)
	s := &stream{patience: c.opts.SendTimeout, rpc: rpc, spool: spool, cancel: cancel, drained: make(chan struct{}), finished: make(chan struct{})}
	if err == nil {
		err = c.greet(s)
	}
	if !late.Stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return s, nil
}

var errStalled = errors.New("spool takes nothing of what is sent to it")

// push sends frames. gRPC waits for as long as the peer's windows are full, so a spool that hangs would hold a message and
// its client for the whole life of the stream: it is given up instead.
func (s *stream) push(frames ...*spoolv1.SubmitFrame) error {
	late := time.AfterFunc(s.patience, func() {
		s.stalled.Store(true)
		s.cancel(errStalled)
	})
	defer late.Stop()
	return s.rpc.Send(&spoolv1.SubmitRequest{Frames: frames})
}

// greet exchanges hellos.
func (c *Client) greet(s *stream) error {
	hello := &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{Hello: &spoolv1.SubmitHello{
		ProtocolVersion: protocolVersion,
		Gateway:         c.opts.Gateway,
	}}}
	err := s.rpc.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{hello}})
	if err != nil && !errors.Is(err, io.EOF) { // EOF: Recv tells why
		return err
	}
	resp, err := s.rpc.Recv()
	if err != nil {
		return err
	}
	if len(resp.GetFrames()) == 0 || resp.GetFrames()[0].GetHello() == nil {
		return errors.New("spool did not say hello first")
	}
	if v := resp.GetFrames()[0].GetHello().GetProtocolVersion(); v != protocolVersion {
		return fmt.Errorf("spool speaks protocol version %d, want %d", v, protocolVersion)
	}
	c.handle(s, resp)
	return nil
}

// serve runs a stream for small messages until it ends, then queues again what it left without an answer.
func (c *Client) serve(ctx context.Context, s *stream) {
	var sender sync.WaitGroup
	sender.Go(func() { c.send(s) })
	err := c.receive(s)
	s.cancel(nil)
	close(s.finished)
	sender.Wait()
	if n := c.requeue(s); n > 0 || ctx.Err() == nil && !errors.Is(err, io.EOF) {
		c.opts.Logger.WarnContext(ctx, "stream to spool ended", "error", err, "unanswered", n)
	}
}

// send sends whatever is queued, as much at once as is there.
func (c *Client) send(s *stream) {
	for {
		select {
		case <-c.wake:
		case <-s.drained:
			_ = s.rpc.CloseSend() // what can't be sent any more is told by the receiver
			return
		case <-s.finished:
			return
		}
		for more := true; more; {
			var frames []*spoolv1.SubmitFrame
			if frames, more = c.take(s); len(frames) == 0 {
				break
			}
			if s.push(frames...) != nil {
				s.cancel(nil) // the receiver ends by it and tells why
				<-s.finished
				return
			}
		}
	}
}

// receive gives answers to those who wait, until the stream ends.
func (c *Client) receive(s *stream) error {
	for {
		resp, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		c.handle(s, resp)
	}
}

func (c *Client) handle(s *stream, resp *spoolv1.SubmitResponse) {
	for _, f := range resp.GetFrames() {
		if id, a, ok := answerTo(f); ok {
			c.resolve(id, a)
			continue
		}
		switch kind := f.GetKind().(type) {
		case *spoolv1.SubmitReplyFrame_Hello:
			c.clock.hear(kind.Hello)
			c.hearOf(kind.Hello.GetPeers())
		case *spoolv1.SubmitReplyFrame_Drain:
			s.drain.Do(func() { close(s.drained) })
		}
	}
}
