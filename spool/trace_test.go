package spool_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// provider gives out one recorder.
type provider struct {
	embedded.TracerProvider
	recorder *recorder
}

func (p provider) Tracer(string, ...trace.TracerOption) trace.Tracer { return p.recorder }

// recorder is a tracer that remembers its spans, since domains do not know the SDK.
type recorder struct {
	embedded.Tracer
	mu    sync.Mutex
	spans []*recorded
	n     uint64
}

type recorded struct {
	noop.Span
	name   string
	self   trace.SpanContext
	parent trace.SpanContext
	mu     sync.Mutex
	links  []trace.Link
	ended  bool
}

func (r *recorder) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	s := &recorded{name: name, links: cfg.Links()}
	var own trace.SpanContextConfig
	if !cfg.NewRoot() {
		s.parent = trace.SpanContextFromContext(ctx)
	}
	own.TraceID, own.TraceFlags = s.parent.TraceID(), trace.FlagsSampled
	if !s.parent.IsValid() {
		binary.BigEndian.PutUint64(own.TraceID[:], r.n)
	}
	binary.BigEndian.PutUint64(own.SpanID[:], r.n)
	s.self = trace.NewSpanContext(own)
	r.spans = append(r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *recorded) SpanContext() trace.SpanContext { return s.self }
func (s *recorded) IsRecording() bool              { return true }
func (s *recorded) AddLink(l trace.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, l)
}

func (s *recorded) End(...trace.SpanEndOption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// of returns the spans of a trace by name, in order.
func (r *recorder) of(id trace.TraceID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.spans {
		if s.self.TraceID() == id {
			names = append(names, s.name)
		}
	}
	return names
}

func (r *recorder) find(name string) *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Backward(r.spans) {
		if s.name == name {
			return s
		}
	}
	return nil
}

// Promise P8: one trace from reception on, and a linked one for late attempts.
func TestTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		cfg := spool.DefaultConfig()
		cfg.BackOff = []time.Duration{time.Hour}
		store := spooltest.NewStore()
		s, err := spool.New(cfg, store, spool.Options{
			Name: "a", TracerProvider: provider{recorder: rec}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		r := &rig{t: t, store: store, spool: s}
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			r.leaveAll()
		}()
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 1, func(_ *sink, job *spool.Job) *spool.WorkResult {
			if job.Attempt == 1 {
				return attempt(job, isTemporary)
			}
			return attempt(job, isDelivered)
		})
		sub := submission("ann@x.example")
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		sub.Trace = &mailv1.TraceContext{Traceparent: parent}
		id := r.accept(sub)
		time.Sleep(2 * time.Hour)
		if states := r.states(id); len(states) != 1 || states[0] != delivered {
			t.Fatalf("states %v", states)
		}
		tid, _ := trace.TraceIDFromHex(parent[3:35])
		want := []string{"spool.accept", "spool.queue parser", "spool.queue filter", "spool.queue deliver"}
		if got := rec.of(tid); !slices.Equal(got, want) {
			t.Errorf("spans of the message's trace %v, want %v", got, want)
		}
		if accept := rec.find("spool.accept"); len(accept.links) != 1 || !accept.ended {
			t.Errorf("spool.accept has links %v, ended %v; want one link to its commit", accept.links, accept.ended)
		}
		late := rec.find("spool.queue deliver")
		if late.self.TraceID() == tid || len(late.links) != 1 || late.links[0].SpanContext.TraceID() != tid {
			t.Errorf("a late attempt is in trace %s with links %v", late.self.TraceID(), late.links)
		}
		jobs := d.got()
		if got := jobs[len(jobs)-1].Trace.GetTraceparent(); got[3:35] != late.self.TraceID().String() {
			t.Errorf("the late job's context is %s", got)
		}
		for _, e := range store.Journal(id) {
			switch e.GetEvent() {
			case "accepted", "parsed", "deferred":
				if e.GetTraceId() != tid.String() {
					t.Errorf("%s has the trace id %s", e.GetEvent(), e.GetTraceId())
				}
			case "delivered":
				if e.GetTraceId() != late.self.TraceID().String() {
					t.Errorf("the late delivery has the trace id %s", e.GetTraceId())
				}
			}
		}
	})
}
