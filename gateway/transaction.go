package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/emersion/go-smtp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// transaction is one message under way, from MAIL to its end. (RFC 5321, section 3.3.)
type transaction struct {
	client   *client
	started  time.Time
	sizeHint int64
	envelope *mailv1.Envelope
	answered bool // it had content, and a span of its own
}

func (c *client) newTransaction(sizeHint int64, env *mailv1.Envelope) *transaction {
	return &transaction{client: c, started: time.Now(), sizeHint: sizeHint, envelope: env}
}

// add puts a recipient into the envelope, or the mailboxes that stand for it, and tells whether there was room. A mailbox
// that stands for several recipients gets the message once.
func (t *transaction) add(address string, final []string, opts *smtp.RcptOptions, limit int) bool {
	var added []*mailv1.Recipient
	for _, to := range final {
		r := recipient(to, opts, t.client.Notifies())
		if to != address {
			if slices.ContainsFunc(t.envelope.GetRecipients(), func(r *mailv1.Recipient) bool { return r.GetAddress() == to }) {
				continue
			}
			if r.OriginalRecipient == "" { // RFC 3461, section 5.2.7.1: notifications speak of the address that the sender knows
				r.OriginalRecipient = "rfc822;" + address
			}
		}
		added = append(added, r)
	}
	if len(t.envelope.GetRecipients())+len(added) > limit {
		return false
	}
	t.envelope.Recipients = append(t.envelope.Recipients, added...)
	return true
}

// drop is called when the session is done with the transaction. One that never had content ends by it.
func (t *transaction) drop() {
	if t.answered {
		return
	}
	_, span := t.startSpan(t.client.ctx, "")
	span.SetAttributes(attribute.Bool("rohrpost.smtp.aborted", true))
	span.End()
}

// startSpan makes the transaction's span, with the time at which the transaction really began: only now, since the
// header of the message may say which trace it belongs to. That is believed of trusted clients only (case J2).
func (t *transaction) startSpan(ctx context.Context, traceparent string) (context.Context, trace.Span) {
	c := t.client
	var opts []trace.SpanStartOption
	if c.g.traced {
		attrs := append(c.attributes(),
			attribute.String("rohrpost.smtp.protocol", t.envelope.GetReception().GetProtocol()),
			attribute.Int("rohrpost.recipients", len(t.envelope.GetRecipients())))
		opts = []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindServer),
			trace.WithTimestamp(t.started),
			trace.WithLinks(trace.Link{SpanContext: c.span.SpanContext()}),
			trace.WithAttributes(attrs...),
		}
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if traceparent != "" && c.continues() {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		opts = append(opts, trace.WithNewRoot())
	}
	return c.g.tracer.Start(ctx, "smtp.transaction", opts...) //nolint:spancheck // the caller ends it
}

// endSpan notes how it went.
func endSpan(span trace.Span, size int64, err error) {
	code := 250
	if err != nil {
		reply := smtpreply.From(err)
		code = int(reply.Reply().GetCode())
		span.SetAttributes(attribute.String("rohrpost.smtp.enhanced_code", reply.Reply().GetEnhancedCode()))
		if reply.Temporary() {
			span.RecordError(err)
			span.SetStatus(codes.Error, "refused for now")
		}
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("rohrpost.smtp.reply_code", code), attribute.Int64("rohrpost.message.size", size))
	}
	span.End()
}
