package gateway_test

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// recorder is a tracer provider that keeps ended spans. The SDK, which has one, is for services only.
type recorder struct {
	embedded.TracerProvider

	mu    sync.Mutex
	spans []*recordedSpan
}

type recordedSpan struct {
	noop.Span
	r       *recorder
	name    string
	context trace.SpanContext
	parent  trace.SpanContext
	started time.Time
	links   []trace.Link

	mu    sync.Mutex
	attrs map[attribute.Key]attribute.Value
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return recordingTracer{r: r} }

type recordingTracer struct {
	embedded.Tracer
	r *recorder
}

func (t recordingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	s := &recordedSpan{r: t.r, name: name, started: cfg.Timestamp(), links: cfg.Links(), attrs: map[attribute.Key]attribute.Value{}}
	if !cfg.NewRoot() {
		s.parent = trace.SpanContextFromContext(ctx)
	}
	sc := trace.SpanContextConfig{TraceID: s.parent.TraceID(), TraceFlags: trace.FlagsSampled}
	if !sc.TraceID.IsValid() {
		_, _ = rand.Read(sc.TraceID[:])
	}
	_, _ = rand.Read(sc.SpanID[:])
	s.context = trace.NewSpanContext(sc)
	s.SetAttributes(cfg.Attributes()...)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *recordedSpan) IsRecording() bool { return true }

func (s *recordedSpan) SpanContext() trace.SpanContext { return s.context }

func (s *recordedSpan) SetAttributes(kv ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range kv {
		s.attrs[a.Key] = a.Value
	}
}

func (s *recordedSpan) End(...trace.SpanEndOption) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.spans = append(s.r.spans, s)
}

// named returns the ended spans of a name.
func (r *recorder) named(name string) []*recordedSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*recordedSpan
	for _, s := range r.spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}
