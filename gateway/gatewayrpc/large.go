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

// submitLarge sends a message on a stream of its own while its content arrives, to the spool that owes the least. It can't
// be sent a second time: where the stream breaks, its client must do it. Only before that another spool is tried.
func (c *Client) submitLarge(ctx context.Context, sub *gateway.Submission, begin *spoolv1.SubmitBegin, deadline time.Time) answer {
	var tried []string
	for {
		main, err := c.await(ctx, tried)
		if err != nil {
			return answer{err: err}
		}
		// The stream outlives ctx by the time that it takes to tell the spool.
		s, err := c.connect(context.WithoutCancel(ctx), main.spool)
		if err == nil {
			return c.upload(ctx, main, s, sub, begin, deadline)
		}
		c.endLarge(main, true)
		c.opts.Logger.WarnContext(ctx, "no stream for a large message", "spool", main.name, "error", err)
		tried = append(tried, main.name)
	}
}

// upload sends a message on a stream of its own, s, to the spool of main.
func (c *Client) upload(ctx context.Context, main, s *stream, sub *gateway.Submission, begin *spoolv1.SubmitBegin, deadline time.Time) (a answer) {
	defer func() {
		s.cancel(nil)
		c.endLarge(main, s.stalled.Load() || a.spool != "" && a.full())
	}()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(abortWait, func() { s.cancel(context.Cause(ctx)) }) })
	defer stop()
	id := begin.GetId()
	answers := make(chan answer, 1)
	go func() { answers <- s.awaitAnswer(id) }()

	begun := &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Begin{Begin: withDeadline(begin, deadline)}}
	if s.push(begun) == nil { // else the answer tells why
		if early, err := sendContent(s, id, sub.Stream, answers); err != nil {
			takeBack(s, id)
			return answer{err: err}
		} else if early != nil {
			return *early
		}
	}
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
	}
	// All content may have been sent, so the spool may be about to accept it: what it answers now counts.
	takeBack(s, id)
	if a := <-answers; a.err == nil {
		return a
	}
	return answer{err: context.Cause(ctx)}
}

// await returns the stream to the spool that is to have the next large message, and counts it there until endLarge. Where
// none is up it waits; where all have been tried it gives up.
func (c *Client) await(ctx context.Context, tried []string) (*stream, error) {
	for {
		c.mu.Lock()
		s, _ := c.best(tried)
		if s != nil {
			s.large++
			s.spool.uses++
		}
		lost, news := c.down || len(c.streams) > 0, c.news
		c.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case lost:
			return nil, errUnreachable
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// endLarge takes note of the end of a large message, and of whether the spool could not take it.
func (c *Client) endLarge(main *stream, aside bool) {
	c.mu.Lock()
	main.large--
	if aside {
		main.aside = time.Now().Add(c.opts.Aside)
	}
	c.mu.Unlock()
	c.release(main.spool)
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
func (s *stream) awaitAnswer(id string) answer {
	for {
		resp, err := s.rpc.Recv()
		if err != nil {
			if s.stalled.Load() {
				err = errStalled
			}
			return answer{err: fmt.Errorf("spool gave no answer: %w", err)}
		}
		for _, f := range resp.GetFrames() {
			if about, a, ok := s.answerTo(f); ok && about == id {
				return a
			}
		}
	}
}
