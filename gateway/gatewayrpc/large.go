package gatewayrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

const (
	// chunkSize is how much of a large message is sent at once.
	chunkSize = 128 << 10
	// abortWait is how long the spool may take to answer an abort.
	abortWait = 2 * time.Second
)

// submitLarge sends a message on a stream of its own while its content arrives. It can't be sent a second time: where the
// stream breaks, its client must do it.
func (c *Client) submitLarge(ctx context.Context, sub *gateway.Submission, begin *spoolv1.SubmitBegin, deadline time.Time) (gateway.Receipt, error) {
	spool, err := c.reachable()
	if err != nil {
		return gateway.Receipt{}, err
	}
	defer c.release(spool)
	// The stream outlives ctx by the time that it takes to tell the spool.
	s, err := c.connect(context.WithoutCancel(ctx), spool)
	if err != nil {
		return gateway.Receipt{}, err
	}
	defer s.cancel(nil)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(abortWait, func() { s.cancel(context.Cause(ctx)) }) })
	defer stop()
	id := begin.GetId()
	answers := make(chan answer, 1)
	go func() { answers <- c.awaitAnswer(s, id) }()

	begun := &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Begin{Begin: withDeadline(begin, deadline)}}
	if s.push(begun) == nil { // else the answer tells why
		if early, err := sendContent(s, id, sub.Stream, answers); err != nil {
			takeBack(s, id)
			return gateway.Receipt{}, err
		} else if early != nil {
			return early.receipt, early.err
		}
	}
	select {
	case a := <-answers:
		return a.receipt, a.err
	case <-ctx.Done():
	}
	// All content may have been sent, so the spool may be about to accept it: what it answers now counts.
	takeBack(s, id)
	if a := <-answers; a.err == nil {
		return a.receipt, nil
	}
	return gateway.Receipt{}, context.Cause(ctx)
}

// sendContent sends all of a message's content. An answer that comes before its end is returned: it must be a refusal,
// or the stream has broken. An error is the content's own.
func sendContent(s *stream, id string, content io.Reader, answers <-chan answer) (*answer, error) {
	var size int64
	for {
		chunk := make([]byte, chunkSize) // a new one each time: gRPC may still look at the last
		n, last, err := fillChunk(content, chunk)
		if err != nil {
			return nil, err
		}
		select {
		case a := <-answers:
			if a.err == nil {
				a.err = errors.New("spool accepted a message before its end")
			}
			return &a, nil
		default:
		}
		var frames []*spoolv1.SubmitFrame
		if n > 0 {
			frames = append(frames, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Chunk{
				Chunk: &spoolv1.SubmitChunk{Id: id, Data: chunk[:n]},
			}})
			size += int64(n)
		}
		if last {
			frames = append(frames, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_End{
				End: &spoolv1.SubmitEnd{Id: id, Size: size},
			}})
		}
		if s.push(frames...) != nil || last {
			return nil, nil // the answer follows, or the reason why there is none
		}
	}
}

// fillChunk reads until the chunk is full or the content has ended. io.ReadFull would not do: its ErrUnexpectedEOF for a
// short read looks like that of a client that is gone in the middle of a message.
func fillChunk(content io.Reader, chunk []byte) (n int, last bool, err error) {
	for n < len(chunk) {
		m, err := content.Read(chunk[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// takeBack tells the spool that the message is not wanted and ends the stream.
func takeBack(s *stream, id string) {
	// Both fail only where the stream has broken, and then the spool drops the message by itself.
	_ = s.push(abortFrame(id))
	_ = s.rpc.CloseSend()
}

// awaitAnswer receives until there is an answer to the message.
func (c *Client) awaitAnswer(s *stream, id string) answer {
	for {
		resp, err := s.rpc.Recv()
		if err != nil {
			if s.stalled.Load() {
				err = errStalled
			}
			return answer{err: fmt.Errorf("spool gave no answer: %w", err)}
		}
		for _, f := range resp.GetFrames() {
			if about, a, ok := answerTo(f); ok && about == id {
				return a
			}
		}
	}
}

// reachable returns a spool to open a stream to: the one that small messages go to, else the next. The caller releases it.
func (c *Client) reachable() (*target, error) {
	c.mu.Lock()
	if current := c.current; current != nil {
		defer c.mu.Unlock()
		return c.use(current.spool), nil
	}
	down := c.down
	c.mu.Unlock()
	if down {
		return nil, errUnreachable
	}
	return c.pick()
}
