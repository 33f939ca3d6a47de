package deliver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxPerNotification is how many recipients one notification tells of. The failures of a task, and its successes, stand in
// one notification up to here, and in several beyond, so that each stays under 512 KiB whatever its addresses and replies.
const maxPerNotification = 100

// Notification is a delivery status notification, ready to be sent. (RFC 3464.)
type Notification struct {
	// Envelope has the null reverse-path and the sender of the original message as its only recipient.
	Envelope *mailv1.Envelope
	// Content has at most 512 KiB, lines ended by CRLF.
	Content []byte
}

// Bounce writes the notifications about recipients that end without another attempt, such as by age; results tell the
// last that was heard of each. The attempt has no results of its own. There are no notifications where the sender is
// null or asked for none. The error is set where a recipient is not in the envelope.
func (d *Deliverer) Bounce(ctx context.Context, task Task, results []*mailv1.RecipientResult) (*mailv1.Attempt, []*Notification, error) {
	ctx, span := d.tracer.Start(ctx, "deliver.bounce", trace.WithAttributes(
		attribute.String("rohrpost.message.id", task.MessageID),
		attribute.Int("rohrpost.recipients", len(results)),
	))
	defer span.End()
	started := d.now()
	a := &attempt{Task: task}
	for _, r := range results {
		t := &target{recipient: r.GetRecipient(), status: r.GetStatus(), reply: r.GetReply()}
		if t.recipient < 0 || int(t.recipient) >= len(task.Envelope.GetRecipients()) {
			return nil, nil, fmt.Errorf("recipient %d is not in the envelope", t.recipient)
		}
		t.address = task.Envelope.GetRecipients()[t.recipient].GetAddress()
		a.targets = append(a.targets, t)
	}
	notifications := d.notifications(ctx, a, a.targets, nil)
	d.log.InfoContext(ctx, "notification written", "message_id", task.MessageID, "recipients", len(results), "notifications", len(notifications))
	return &mailv1.Attempt{
		Destination: task.Destination,
		Number:      task.Number,
		StartedAt:   timestamppb.New(started),
		FinishedAt:  timestamppb.New(d.now()),
		Route:       "bounce",
	}, notifications, nil
}

// reports writes the notifications about the permanent failures of an attempt, and about its successes.
func (d *Deliverer) reports(ctx context.Context, a *attempt) []*Notification {
	var failed, arrived []*target
	for _, t := range a.targets {
		switch {
		case t.status == permanent:
			failed = append(failed, t)
		case t.status == delivered && !t.handedOver:
			arrived = append(arrived, t)
		}
	}
	return d.notifications(ctx, a, failed, arrived)
}

// notifications writes about the recipients whose sender wants to hear of their failure, or of their success.
func (d *Deliverer) notifications(ctx context.Context, a *attempt, failed, arrived []*target) []*Notification {
	if a.Envelope.GetSender() == "" {
		return nil // never a bounce of a bounce (cases F1, F2; RFC 5321, section 4.5.5)
	}
	failed, arrived = a.whose(failed, wantsFailure), a.whose(arrived, wantsSuccess)
	if len(failed)+len(arrived) == 0 {
		return nil
	}
	back := d.returned(ctx, a)
	var reports []*report
	for group := range slices.Chunk(failed, maxPerNotification) {
		reports = append(reports, &report{host: d.host, now: d.now(), attempt: a, about: group, back: back})
	}
	back.full = nil // RET is about failures only (RFC 3461, section 4.3)
	for group := range slices.Chunk(arrived, maxPerNotification) {
		reports = append(reports, &report{host: d.host, now: d.now(), attempt: a, about: group, back: back, success: true})
	}
	out := make([]*Notification, len(reports))
	for i, r := range reports {
		out[i] = r.notification(min(maxContent, maxContents/len(reports)))
	}
	return out
}

// whose returns those of the targets whose recipients want something.
func (a *attempt) whose(targets []*target, want func(*mailv1.Recipient) bool) (list []*target) {
	for _, t := range targets {
		if want(a.Envelope.GetRecipients()[t.recipient]) {
			list = append(list, t)
		}
	}
	return list
}

// wantsFailure tells whether a failure is to be told. (RFC 3461, section 4.1; case F3.)
func wantsFailure(r *mailv1.Recipient) bool {
	return len(r.GetNotify()) == 0 || slices.Contains(r.GetNotify(), mailv1.DsnNotify_DSN_NOTIFY_FAILURE)
}

// wantsSuccess tells whether a success is to be told. (RFC 3461, section 4.1.)
func wantsSuccess(r *mailv1.Recipient) bool {
	return slices.Contains(r.GetNotify(), mailv1.DsnNotify_DSN_NOTIFY_SUCCESS)
}

// rfc5322Date writes a date-time. (RFC 5322, section 3.3.)
func rfc5322Date(t time.Time) string { return t.UTC().Format("Mon, 02 Jan 2006 15:04:05 +0000") }
