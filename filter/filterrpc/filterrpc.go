// Package filterrpc puts the filter on the wire: it is the handler of the filter stage for proto/worker.
package filterrpc

import (
	"context"
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
			Content:  func() (io.ReadCloser, error) { return job.Open(ctx, 0) },
			Size:     job.GetContentSize(),
		})
		if err != nil {
			return nil, fmt.Errorf("judging message %s: %w", job.GetMessageId(), err)
		}
		return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}, nil
	}
}
