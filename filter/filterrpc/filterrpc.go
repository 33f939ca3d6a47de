// Package filterrpc puts the filter on the wire: it is the handler of the filter stage for proto/worker.
package filterrpc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rohrpost/rohrpost/filter"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

// Handler judges the messages of filter jobs. The spans of a judgement are children of the span in the job's context.
// An error means that the job could not be done and is given out again; it says nothing of the message.
func Handler(f *filter.Filter) worker.Handler {
	return func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		work := job.GetFilter()
		if work == nil {
			return nil, fmt.Errorf("job of message %s is not for the filter", job.GetMessageId())
		}
		verdict, err := f.Judge(ctx, filter.Input{
			ID:       job.GetMessageId(),
			Envelope: job.GetEnvelope(),
			Parsed:   work.GetParsed(),
			Content:  func() (io.ReadCloser, error) { return open(ctx, job) },
			Size:     job.GetContentSize(),
		})
		if err != nil {
			return nil, fmt.Errorf("judging message %s: %w", job.GetMessageId(), err)
		}
		return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}, nil
	}
}

// headSize is how many octets of large content are fetched first: the header section of nearly every message.
const headSize = 64 << 10

// open opens the content: first its head, and the rest once more is read. Of mail without signatures that is all there is to
// read.
func open(ctx context.Context, job *worker.Job) (io.ReadCloser, error) {
	size := job.GetContentSize()
	if len(job.GetContent()) > 0 || size <= headSize {
		return job.Open(ctx, 0)
	}
	ctx, cancel := context.WithCancel(ctx) // closes both
	head, err := job.OpenPart(ctx, 0, headSize)
	if err != nil {
		cancel()
		return nil, err
	}
	return &content{Reader: head, cancel: cancel, rest: func() (io.Reader, error) { return job.Open(ctx, headSize) }}, nil
}

// content is content of which the rest is opened when the head has been read. It may be closed while it is read.
type content struct {
	io.Reader // what is being read
	rest      func() (io.Reader, error)
	cancel    context.CancelFunc
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (n int, err error) {
	n, err = c.Reader.Read(p)
	if !errors.Is(err, io.EOF) || c.rest == nil {
		return n, err
	}
	if c.Reader, err = c.rest(); err != nil {
		return n, err
	}
	c.rest = nil
	return n, nil
}

// Close implements io.Closer.
func (c *content) Close() error {
	c.cancel()
	return nil
}
