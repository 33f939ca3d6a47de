package spoolsend

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// startSpan starts the span of a call. Its parent is the request's own context, else that of the call's metadata; what
// can't be read is as good as none.
func (s *Server) startSpan(ctx context.Context, req *sendv1.SendMessageRequest) (context.Context, trace.Span) {
	carrier := propagation.MapCarrier{
		"traceparent": req.GetTrace().GetTraceparent(), "tracestate": req.GetTrace().GetTracestate(),
	}
	if carrier["traceparent"] == "" {
		md, _ := metadata.FromIncomingContext(ctx)
		for name := range carrier {
			if values := md.Get(name); len(values) == 1 {
				carrier[name] = values[0]
			}
		}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.Int("rohrpost.message.size", len(req.GetContent())),
			attribute.Int("rohrpost.recipients", len(req.GetRecipients()))),
	}
	return s.tracer.Start(ctx, "send.message", opts...) //nolint:spancheck // the caller ends it
}

// noteID names the message on the call's span.
func noteID(ctx context.Context, id spool.ID) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("rohrpost.message.id", id.String()))
}

// endSpan ends a call's span. It is in error where something of ours went wrong.
func endSpan(span trace.Span, err error) {
	if code := status.Code(err); code != codes.OK && code != codes.AlreadyExists {
		span.SetStatus(otelcodes.Error, status.Convert(err).Message())
	}
	span.End()
}

// traceOf is the context of the current span, for the message; nil where there is none.
func traceOf(ctx context.Context) *mailv1.TraceContext {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if carrier["traceparent"] == "" {
		return nil
	}
	return &mailv1.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}
