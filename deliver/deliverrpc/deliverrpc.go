// Package deliverrpc makes a worker of a deliverer: it turns the spool's deliver and bounce jobs into attempts and
// notifications.
package deliverrpc

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

// Handler returns the function that [worker.Run] calls for each job of stage DELIVER. It is safe for concurrent use.
// An error, which becomes a JobFailure, means that nothing was sent.
func Handler(d *deliver.Deliverer) worker.Handler {
	return func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		switch work := job.GetWork().(type) {
		case *spoolv1.Job_Deliver:
			t := task(job)
			t.Destination = work.Deliver.GetDestination()
			t.Recipients = work.Deliver.GetRecipients()
			t.Number = work.Deliver.GetAttempt()
			attempt, notifications, err := d.Attempt(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("delivering: %w", err)
			}
			return result(attempt, notifications), nil
		case *spoolv1.Job_Bounce:
			attempt, notifications, err := d.Bounce(ctx, task(job), work.Bounce.GetResults())
			if err != nil {
				return nil, fmt.Errorf("writing a notification: %w", err)
			}
			return result(attempt, notifications), nil
		default:
			return nil, fmt.Errorf("a deliver worker can't do work of kind %T", work)
		}
	}
}

func task(job *worker.Job) deliver.Task {
	return deliver.Task{
		MessageID: job.GetMessageId(),
		Envelope:  job.GetEnvelope(),
		Edits:     job.GetEdits(),
		Size:      job.GetContentSize(),
		Received:  job.GetEnvelope().GetReception().GetReceivedAt().AsTime(),
		Permit:    job.Permit,
		Content: func(ctx context.Context) (io.ReadCloser, error) {
			if content := job.GetContent(); len(content) > 0 || job.GetContentSize() == 0 {
				return io.NopCloser(bytes.NewReader(content)), nil
			}
			return job.Open(ctx, 0)
		},
	}
}

func result(attempt *mailv1.Attempt, notifications []*deliver.Notification) *spoolv1.Result {
	out := &spoolv1.DeliverResult{Attempt: attempt}
	for _, n := range notifications {
		out.Notifications = append(out.Notifications, &spoolv1.Notification{Envelope: n.Envelope, Content: n.Content})
	}
	return &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: out}}
}
