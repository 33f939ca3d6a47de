package gatewayrpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/gateway"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// call is a small message that waits for its answer.
type call struct {
	begin    *spoolv1.SubmitBegin
	content  []byte
	size     int // of the frame, about
	deadline time.Time
	answer   chan answer // has room for the one

	on *stream // the stream that it was sent on last; nil while it waits for one. Guarded by Client.mu
	// sent tells whether a spool may have seen it. Guarded by Client.mu.
	sent bool
}

// frame is what the next spool is sent. again tells that another may have seen it.
func (c *call) frame(again bool) *spoolv1.SubmitFrame {
	begin := withDeadline(c.begin, c.deadline)
	begin.Again = again
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{Message: &spoolv1.SubmitMessage{
		Begin: begin, Content: c.content,
	}}}
}

func abortFrame(id string) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Abort{Abort: &spoolv1.SubmitAbort{Id: id}}}
}

func (c *Client) submitSmall(ctx context.Context, sub *gateway.Submission, begin *spoolv1.SubmitBegin, deadline time.Time) (gateway.Receipt, error) {
	call := &call{
		begin:    begin,
		content:  sub.Content,
		size:     len(sub.Content) + proto.Size(begin) + 32,
		deadline: deadline,
		answer:   make(chan answer, 1),
	}
	if err := c.enqueue(call); err != nil {
		return gateway.Receipt{}, err
	}
	select {
	case a := <-call.answer:
		return a.receipt, a.err
	case <-ctx.Done():
		return c.withdraw(ctx, call)
	}
}

func (c *Client) enqueue(call *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return errUnreachable
	}
	c.calls[call.begin.GetId()] = call
	c.queue = append(c.queue, call)
	c.signal()
	return nil
}

// withdraw takes a message back whose client no longer waits. An answer that came in the same moment counts.
func (c *Client) withdraw(ctx context.Context, call *call) (gateway.Receipt, error) {
	id := call.begin.GetId()
	c.mu.Lock()
	waiting := c.calls[id] == call
	if waiting {
		delete(c.calls, id)
		if call.sent && c.current != nil {
			c.aborts = append(c.aborts, id)
			c.signal()
		}
	}
	c.mu.Unlock()
	if waiting {
		return gateway.Receipt{}, context.Cause(ctx)
	}
	a := <-call.answer // whoever took the call out is giving it
	return a.receipt, a.err
}

// resolve gives an answer to whoever waits for it.
func (c *Client) resolve(id string, a answer) {
	c.mu.Lock()
	call := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if call != nil { // else it was withdrawn, or answered on an earlier stream
		call.answer <- a
	}
}

// signal wakes the sender. c.mu must be held, so that a sender that is about to stop can pass the signal on.
func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// maxBatch bounds the octets of a send of more than one frame, see spool_service.proto.
const maxBatch = 240 << 10

// take returns the frames that s is to send next, and whether more are left. The calls among them now belong to s.
func (c *Client) take(s *stream) (frames []*spoolv1.SubmitFrame, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != s {
		c.signal() // it was meant for the next one
		return nil, false
	}
	size := 0
	for _, id := range c.aborts {
		frames = append(frames, abortFrame(id))
		size += len(id) + 16
	}
	c.aborts = nil
	for len(c.queue) > 0 {
		call := c.queue[0]
		if len(frames) > 0 && size+call.size > maxBatch {
			return frames, true
		}
		c.queue[0] = nil
		c.queue = c.queue[1:]
		if c.calls[call.begin.GetId()] != call { // withdrawn, or answered after all
			continue
		}
		frames = append(frames, call.frame(call.sent))
		call.on, call.sent = s, true
		size += call.size
	}
	c.queue = nil
	return frames, false
}

// requeue makes the messages that s left without an answer the next ones to be sent.
func (c *Client) requeue(s *stream) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.on == s {
			call.on = nil
			c.queue = append(c.queue, call)
			count++
		}
	}
	c.signal()
	return count
}

// giveUp tells the clients of messages that no spool can have seen that there is none. Those that were sent wait on,
// since a spool may have accepted them.
func (c *Client) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return
	}
	c.down = true
	var sent []*call
	for _, call := range c.queue {
		switch {
		case c.calls[call.begin.GetId()] != call:
		case call.sent:
			sent = append(sent, call)
		default:
			delete(c.calls, call.begin.GetId())
			call.answer <- answer{err: errUnreachable}
		}
	}
	c.queue = sent
}

// abandon ends all messages, at the end of Run.
func (c *Client) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for id, call := range c.calls {
		delete(c.calls, id)
		call.answer <- answer{err: errUnreachable}
	}
	c.queue, c.aborts = nil, nil
}
