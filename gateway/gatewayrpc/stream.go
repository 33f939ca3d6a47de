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
	name     string                  // of the spool; set before anything else happens on the stream
	cancel   context.CancelCauseFunc // ends the call
	patience time.Duration           // how long a send may take
	stalled  atomic.Bool             // one took longer
	drained  atomic.Bool             // the spool wants nothing new
	left     chan struct{}           // closed when it takes no more messages
	wake     chan struct{}           // has room for one; filled when queue or aborts grow

	// What follows is guarded by Client.mu.

	queue          []*call   // those that the next sends take
	aborts         []string  // ids to be taken back by the next send
	frames, octets int       // of small messages that are in queue or without an answer
	large          int       // large messages that are under way to the same spool
	heard          time.Time // when the last answer came, or, if that is later, when there began to be one to come
	aside          time.Time // until when others are asked first, since the spool had no room
	pushing        time.Time // when the send under way began; zero if there is none
	peers          []string  // addresses of other spools, as the last hello told
	gone           bool      // left is closed
}

// signal wakes the sender.
func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// connect opens a stream to a spool and exchanges hellos. The caller calls the stream's cancel when done with it.
func (c *Client) connect(ctx context.Context, spool *target) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.opts.HelloTimeout, func() { cancel(errors.New("no hello in time")) })
	rpc, err := spool.Submit(ctx)
	s := &stream{
		rpc: rpc, spool: spool, cancel: cancel, patience: c.opts.SendTimeout,
		left: make(chan struct{}), wake: make(chan struct{}, 1),
	}
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

// giveUp ends the stream to a spool that hangs.
func (s *stream) giveUp() {
	s.stalled.Store(true)
	s.cancel(errStalled)
}

// push sends frames. gRPC waits for as long as the peer's windows are full, so a spool that hangs would hold a message and
// its client for the whole life of the stream: it is given up instead.
func (s *stream) push(frames ...*spoolv1.SubmitFrame) error {
	late := time.AfterFunc(s.patience, s.giveUp)
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
	answer := resp.GetFrames()[0].GetHello()
	if v := answer.GetProtocolVersion(); v != protocolVersion {
		return fmt.Errorf("spool speaks protocol version %d, want %d", v, protocolVersion)
	}
	s.name = answer.GetSpool()
	c.handle(s, resp)
	return nil
}

// serve runs a stream for small messages until it ends, then has others take what it left without an answer.
func (c *Client) serve(ctx context.Context, s *stream) {
	var sender sync.WaitGroup
	sender.Go(func() { c.send(s) })
	err := c.receive(s)
	s.cancel(nil)
	c.leave(s)
	sender.Wait()
	switch n := c.collect(s, !s.drained.Load() && !s.stalled.Load()); {
	case n > 0 || ctx.Err() == nil && !errors.Is(err, io.EOF):
		c.opts.Logger.WarnContext(ctx, "stream to spool ended", "spool", s.name, "error", err, "unanswered", n)
	case ctx.Err() == nil:
		c.opts.Logger.InfoContext(ctx, "spool has stopped", "spool", s.name)
	}
}

// send sends whatever is queued, as much at once as is there. On a stream that takes no more messages that is what is taken
// back, until the spool has answered for the rest.
func (c *Client) send(s *stream) {
	left := s.left
	for {
		select {
		case <-s.wake:
		case <-left:
			left = nil
		case <-s.rpc.Context().Done(): // what can't be sent any more is told by the receiver
			return
		}
		for {
			frames := c.take(s)
			if len(frames) == 0 {
				break
			}
			if s.push(frames...) != nil {
				s.cancel(nil) // the receiver ends by it and tells why
				return
			}
		}
		if left == nil && c.owesNothing(s) {
			_ = s.rpc.CloseSend()
			return
		}
	}
}

// owesNothing tells whether a spool has answered for all small messages that it was sent on a stream.
func (c *Client) owesNothing(s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.frames == 0
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
		if id, a, ok := s.answerTo(f); ok {
			c.resolve(s, id, a)
			continue
		}
		switch kind := f.GetKind().(type) {
		case *spoolv1.SubmitReplyFrame_Hello:
			c.clock.hear(kind.Hello)
			c.hearOf(s, kind.Hello.GetPeers())
		case *spoolv1.SubmitReplyFrame_Drain:
			s.drained.Store(true)
			c.leave(s)
		}
	}
}
