package gatewayrpc

import (
	"context"
	"slices"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// call is a small message on its way. What is below answer is guarded by Client.mu.
type call struct {
	id       string
	size     int // of the frame, about
	deadline time.Time
	answer   chan answer // has room for the one

	begin   *spoolv1.SubmitBegin
	content []byte
	// at is where it is: more than one place where a spool that may have it came back after another was asked.
	at []place
	// seen names the spools that were sent it, but for those that said that they had no room.
	seen []string
	// lost names those whose streams broke before they answered: they may have made it durable.
	lost []string
	// refused names the spools that had no room for it.
	refused []string
	// heldFor names the spool that alone is asked until heldUntil, once it is back: its stream broke, and where it is there
	// still, only it can tell what became of the message.
	heldFor   string
	heldUntil time.Time
	// done tells that the client has its answer, or waits no longer: the call is kept until no spool owes an answer.
	done bool
}

// place is a stream that has a call in its queue, or that was sent it and has not answered.
type place struct {
	*stream
	sent bool
}

// find returns the index of a stream in c.at, -1 where it is not there.
func (c *call) find(s *stream) int {
	return slices.IndexFunc(c.at, func(p place) bool { return p.stream == s })
}

// frame is what the next spool is sent.
func (c *call) frame() *spoolv1.SubmitFrame {
	begin := withDeadline(c.begin, c.deadline)
	begin.Again = len(c.seen)+len(c.lost) > 0
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{Message: &spoolv1.SubmitMessage{
		Begin: begin, Content: c.content,
	}}}
}

func abortFrame(id string) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Abort{Abort: &spoolv1.SubmitAbort{Id: id}}}
}

func (c *Client) submitSmall(ctx context.Context, sub *gateway.Submission, begin *spoolv1.SubmitBegin, deadline time.Time) answer {
	call := &call{
		id:       begin.GetId(),
		begin:    begin,
		content:  sub.Content,
		size:     len(sub.Content) + wire.Size(begin) + 32,
		deadline: deadline,
		answer:   make(chan answer, 1),
	}
	if err := c.enqueue(call); err != nil {
		return answer{err: err}
	}
	select {
	case a := <-call.answer:
		return a
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
	c.calls[call.id] = call
	c.dispatch(call)
	return nil
}

// withdraw takes a message back whose client no longer waits. An answer that came in the same moment counts.
func (c *Client) withdraw(ctx context.Context, call *call) answer {
	c.mu.Lock()
	waiting := !call.done
	if waiting {
		for _, p := range call.at {
			if p.sent {
				p.aborts = append(p.aborts, call.id)
				p.signal()
			}
		}
		for _, name := range call.lost {
			c.owed = append(c.owed, abort{spool: name, id: call.id, until: call.deadline})
		}
		c.finish(call)
	}
	c.mu.Unlock()
	if waiting {
		return answer{err: context.Cause(ctx)}
	}
	return <-call.answer // whoever finished the call has given it
}

// abort is a message to be taken back from a spool whose stream broke, should that come back in time: it may be making the
// message durable, whose client was told 451. After the message's deadline it takes that back by itself.
type abort struct {
	spool, id string
	until     time.Time
}

// takeBackOwed takes back what a spool may have from an earlier stream. c.mu must be held.
func (c *Client) takeBackOwed(s *stream) {
	c.owed = slices.DeleteFunc(c.owed, func(a abort) bool {
		if a.spool == s.name {
			s.aborts = append(s.aborts, a.id)
			s.signal()
		}
		return a.spool == s.name
	})
}

// finish lets go of a call whose client has its answer or waits no longer. c.mu must be held.
func (c *Client) finish(call *call) {
	call.done, call.begin, call.content = true, nil, nil
	for _, p := range slices.Clone(call.at) {
		if !p.sent {
			c.detach(call, p.stream)
		}
	}
	c.forget(call)
}

// forget drops a call that nobody asks about any more. c.mu must be held.
func (c *Client) forget(call *call) {
	if call.done && len(call.at) == 0 {
		delete(c.calls, call.id)
	}
}

// resolve takes note of what a spool said of a message.
func (c *Client) resolve(s *stream, id string, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[id]
	if call == nil || !c.detach(call, s) {
		return
	}
	now := time.Now()
	s.heard = now
	if a.full() {
		s.aside = now.Add(c.opts.Aside)
		call.refused = append(call.refused, s.name)
		if a.untouched() {
			call.seen = without(call.seen, s.name)
		}
	}
	switch {
	case call.done:
		c.forget(call)
	case a.err != nil && len(call.at) > 0: // what the other one says counts: it may have the message
	case a.full() && c.ready(call.refused):
		c.dispatch(call)
	case a.full() && len(call.lost) > 0:
		// It may be durable there, and this one can't tell now: a client that heard 451 would send it a second time.
		call.refused = nil
		c.hold(call, call.lost[0])
	default:
		call.answer <- a
		c.finish(call)
	}
}

// without returns names but for one.
func without(names []string, one string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == one })
}

// maxBatch bounds the octets of a send of more than one frame, see spool_service.proto.
const maxBatch = 240 << 10

// take returns the frames that s is to send next.
func (c *Client) take(s *stream) (frames []*spoolv1.SubmitFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	for _, id := range s.aborts {
		frames = append(frames, abortFrame(id))
		size += len(id) + 16
	}
	s.aborts = nil
	for len(s.queue) > 0 {
		call := s.queue[0]
		if len(frames) > 0 && size+call.size > maxBatch {
			break
		}
		s.queue[0] = nil
		s.queue = s.queue[1:]
		i := call.find(s)
		if call.done || i < 0 {
			continue
		}
		frames = append(frames, call.frame())
		call.at[i].sent = true
		call.seen = append(without(call.seen, s.name), s.name)
		size += call.size
	}
	if len(s.queue) == 0 {
		s.queue = nil
	}
	s.pushing = time.Time{}
	if len(frames) > 0 {
		s.pushing = time.Now()
	}
	return frames
}
