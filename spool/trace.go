package spool

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// spans makes the spool's spans. Where tracing is off it makes none.
type spans struct {
	tracer trace.Tracer
	off    bool
	window time.Duration // after acceptance, in which attempts join the message's trace
}

func newSpans(p trace.TracerProvider, window time.Duration) spans {
	_, off := p.(noop.TracerProvider)
	return spans{tracer: p.Tracer("github.com/rohrpost/rohrpost/spool"), off: off, window: window}
}

const messageKey = attribute.Key("rohrpost.message.id")

// accept starts the span from a submission to its answer. Its context is the message's.
func (s *spans) accept(sub Submission) (*mailv1.TraceContext, trace.Span) {
	if s.off {
		return sub.Trace, nil
	}
	ctx, span := s.tracer.Start(extract(context.Background(), sub.Trace), "spool.accept", trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		span.SetAttributes(messageKey.String(sub.ID.String()), attribute.Int("rohrpost.message.size", len(sub.Content)))
	}
	return inject(ctx, sub.Trace), span
}

// accepted ends the span of a submission.
func (s *spans) accepted(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// queue makes the span of a job's wait in its queue, which has just ended, and gives the job its context. A job long
// after its message's acceptance gets a trace of its own, linked to the message's.
func (s *spans) queue(ctx context.Context, j *Job, ready, accepted, now time.Time) {
	if s.off {
		return
	}
	ctx = extract(ctx, j.Trace)
	opts := []trace.SpanStartOption{trace.WithTimestamp(ready)}
	if now.Sub(accepted) > s.window {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
	}
	ctx, span := s.tracer.Start(ctx, "spool.queue "+j.Stage.String(), opts...)
	if span.IsRecording() {
		span.SetAttributes(messageKey.String(j.ID.String()))
		if j.Stage == StageDeliver {
			span.SetAttributes(attribute.String("rohrpost.destination", j.Destination))
		}
	}
	j.Trace = inject(ctx, j.Trace)
	span.End(trace.WithTimestamp(now))
}

// commit starts the span of a batch, in a trace of its own, linked from the messages that wait for it.
func (s *spans) commit(ctx context.Context, writes []*write) trace.Span {
	if s.off {
		return nil
	}
	_, span := s.tracer.Start(ctx, "spool.commit", trace.WithNewRoot())
	if !span.IsRecording() {
		return span
	}
	span.SetAttributes(attribute.Int("rohrpost.commit.writes", len(writes)))
	link := trace.Link{SpanContext: span.SpanContext()}
	for _, w := range writes {
		w.link = link
		if !w.accept {
			continue
		}
		for _, waiting := range w.msg.waiters {
			if waiting.span != nil {
				waiting.span.AddLink(link)
			}
		}
	}
	return span
}

// within returns a context in which a batch's span is the parent of what the store does.
func (s *spans) within(ctx context.Context, span trace.Span) context.Context {
	if span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span)
}

func (s *spans) committed(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// outcome makes the span from what ended a message to when that was durable.
func (s *spans) outcome(ctx context.Context, w *write, from, now time.Time) {
	if s.off || len(w.Outcomes) == 0 {
		return
	}
	m := w.msg
	ctx = extract(ctx, m.row.Trace)
	opts := []trace.SpanStartOption{trace.WithTimestamp(from)}
	if w.link.SpanContext.IsValid() {
		opts = append(opts, trace.WithLinks(w.link))
	}
	if now.Sub(m.row.Accepted) > s.window {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
	}
	_, span := s.tracer.Start(ctx, "spool.outcome", opts...)
	if span.IsRecording() {
		span.SetAttributes(messageKey.String(m.row.ID.String()), attribute.Int("rohrpost.recipients", len(m.recipients)))
	}
	span.End(trace.WithTimestamp(now))
}

// extract returns ctx with a message's trace context in place of its own.
func extract(ctx context.Context, tc *mailv1.TraceContext) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if tc.GetTraceparent() == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": tc.GetTraceparent(), "tracestate": tc.GetTracestate(),
	})
}

// inject returns the context's trace context, or the one there was where it has none.
func inject(ctx context.Context, was *mailv1.TraceContext) *mailv1.TraceContext {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return was
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return &mailv1.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}
