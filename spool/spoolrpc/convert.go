package spoolrpc

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/types/known/durationpb"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// stageOf is the stage that a worker registers for; 0 where it is not known.
func stageOf(register *spoolv1.Register) spool.Stage {
	switch register.GetStage() {
	case spoolv1.Stage_STAGE_PARSER:
		return spool.StageParser
	case spoolv1.Stage_STAGE_FILTER:
		return spool.StageFilter
	case spoolv1.Stage_STAGE_DELIVER:
		return spool.StageDeliver
	default:
		return 0
	}
}

func ackStatus(ack spool.AckStatus) spoolv1.ResultAckStatus {
	switch ack {
	case spool.AckCounted:
		return spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED
	case spool.AckStale:
		return spoolv1.ResultAckStatus_RESULT_ACK_STATUS_STALE
	default:
		// To present a result again is always safe.
		return spoolv1.ResultAckStatus_RESULT_ACK_STATUS_AGAIN
	}
}

func jobFrame(job *spool.Job) *spoolv1.SpoolFrame {
	msg := &spoolv1.Job{
		Token:       job.Token,
		MessageId:   job.ID.String(),
		Envelope:    job.Envelope,
		Edits:       job.Edits,
		Trace:       job.Trace,
		Lease:       durationpb.New(job.Lease),
		ContentSize: job.Size,
		Content:     job.Content,
	}
	switch {
	case job.Stage == spool.StageParser:
		msg.Work = &spoolv1.Job_Parse{Parse: &spoolv1.ParseWork{}}
	case job.Stage == spool.StageFilter:
		msg.Work = &spoolv1.Job_Filter{Filter: &spoolv1.FilterWork{Parsed: job.Parsed}}
	case len(job.Bounce) > 0:
		msg.Work = &spoolv1.Job_Bounce{Bounce: &spoolv1.BounceWork{Results: job.Bounce}}
	default:
		msg.Work = &spoolv1.Job_Deliver{Deliver: &spoolv1.DeliverWork{
			Destination: job.Destination, Recipients: job.Recipients, Attempt: job.Attempt,
		}}
	}
	return &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Job{Job: msg}}
}

// result converts a result such that exactly one of its fields is set. A result that says nothing is a failure of the
// worker: the job is given out again.
func (st *workStream) result(ctx context.Context, res *spoolv1.Result) spool.WorkResult {
	var out spool.WorkResult
	switch kind := res.GetKind().(type) {
	case *spoolv1.Result_Parse:
		out.Parsed = kind.Parse.GetParsed()
	case *spoolv1.Result_Filter:
		out.Verdict = kind.Filter.GetVerdict()
	case *spoolv1.Result_Deliver:
		if out.Attempt = kind.Deliver.GetAttempt(); out.Attempt != nil {
			out.Notifications = st.notifications(ctx, kind.Deliver.GetNotifications())
		}
	case *spoolv1.Result_Failure:
		if out.Failure = kind.Failure.GetReason(); out.Failure == "" {
			out.Failure = "the worker gave no reason"
		}
		return out
	}
	if out.Parsed == nil && out.Verdict == nil && out.Attempt == nil {
		out.Failure = "the result says nothing"
	}
	return out
}

// notifications leaves out those that could not be sent to anybody: what the attempt achieved counts all the same.
func (st *workStream) notifications(ctx context.Context, in []*spoolv1.Notification) []spool.Notification {
	var out []spool.Notification
	for i, n := range in {
		if len(n.GetEnvelope().GetRecipients()) == 0 {
			st.log.WarnContext(ctx, "notification without recipients dropped", slog.Int("index", i))
			continue
		}
		out = append(out, spool.Notification{Envelope: n.GetEnvelope(), Content: n.GetContent()})
	}
	return out
}
