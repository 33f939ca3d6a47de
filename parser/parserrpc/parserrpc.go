// Package parserrpc puts the parser on the wire: it does the parse jobs of a spool.
package parserrpc

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/parser"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

// scope names the instrumentation.
const scope = "github.com/rohrpost/rohrpost/parser/parserrpc"

// Handler returns the function that does parse jobs, for [worker.Run] at stage PARSER. It is safe for concurrent use.
// Its errors are only about content that could not be read from the spool, never about the content itself. Each job has
// a span `parser.parse` under the span in its context, from the global tracer provider.
func Handler(limits parser.Limits) worker.Handler {
	return HandlerWithTracer(limits, otel.GetTracerProvider())
}

// HandlerWithTracer is [Handler] with spans from a given tracer provider.
func HandlerWithTracer(limits parser.Limits, provider trace.TracerProvider) worker.Handler {
	tracer := provider.Tracer(scope)
	return func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		ctx, span := tracer.Start(ctx, "parser.parse", trace.WithAttributes(
			attribute.String("rohrpost.message.id", job.GetMessageId()),
			attribute.Int64("rohrpost.message.size", job.GetContentSize()),
		))
		defer span.End()
		parsed, err := parse(ctx, job, limits)
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, "content could not be read")
			return nil, err
		}
		span.SetAttributes(
			attribute.Int("rohrpost.parser.defects", len(parsed.GetDefects())),
			attribute.Int("rohrpost.parser.attachments", len(parsed.GetAttachments())),
		)
		return &spoolv1.Result{Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{Parsed: parsed}}}, nil
	}
}

// parse reads the content from the job itself, or from the spool where it does not ride in the job.
func parse(ctx context.Context, job *worker.Job, limits parser.Limits) (*mailv1.ParsedMessage, error) {
	size := job.GetContentSize()
	if len(job.GetContent()) > 0 || size == 0 {
		return parser.Parse(job.GetContent(), limits), nil
	}
	stream, err := job.Open(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the content: %w", err)
	}
	defer stream.Close()
	return parser.ParseReader(stream, size, limits)
}
