package rohrtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span as it came out of the pipeline by OTLP.
type Span struct {
	Service    string // service.name of its resource
	Name       string
	TraceID    string // 32 hexadecimal digits
	SpanID     string // 16 hexadecimal digits
	ParentID   string // empty for a root
	Start, End time.Time
	Attributes map[string]string
	Links      []Link
	Failed     bool // its status is an error
}

// Link points to a span of another trace.
type Link struct{ TraceID, SpanID string }

// Spans returns every span of a trace that has come so far, by time of start.
func (p *Pipeline) Spans(traceID string) []Span { return p.spans.Trace(traceID) }

// AllSpans returns every span that has come so far.
func (p *Pipeline) AllSpans() []Span { return p.spans.Trace("") }

// WaitSpans waits until a trace has a span of each name, and returns all of them.
func (p *Pipeline) WaitSpans(traceID string, names ...string) []Span {
	p.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		changed := p.spans.changes()
		spans := p.Spans(traceID)
		missing := missingNames(spans, names)
		if len(missing) == 0 {
			return spans
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			p.t.Fatalf("trace %s has no span %s; it has:\n%s", traceID, strings.Join(missing, ", "), Tree(spans))
		}
	}
}

// WaitTree is WaitSpans for a trace that began in the pipeline: it waits for the parent of each span too, since each
// process sends its own spans. Where one does not come the spans are returned as they are.
func (p *Pipeline) WaitTree(traceID string, names ...string) []Span {
	p.t.Helper()
	spans := p.WaitSpans(traceID, names...)
	for deadline := time.Now().Add(Patience / 2); hasOrphans(spans) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		spans = p.Spans(traceID)
	}
	return spans
}

func hasOrphans(spans []Span) bool {
	known := map[string]bool{"": true}
	for _, s := range spans {
		known[s.SpanID] = true
	}
	return slices.ContainsFunc(spans, func(s Span) bool { return !known[s.ParentID] })
}

func missingNames(spans []Span, names []string) []string {
	have := map[string]bool{}
	for _, s := range spans {
		have[s.Name] = true
	}
	var missing []string
	for _, name := range names {
		if !have[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// Tree writes spans as a tree, one line each: `service name`, children below their parent by time of start. A span whose
// parent is not among them stands at the top with a mark.
func Tree(spans []Span) string {
	known := map[string]bool{}
	children := map[string][]Span{}
	for _, s := range spans {
		known[s.SpanID] = true
	}
	for _, s := range spans {
		parent := s.ParentID
		if parent != "" && !known[parent] {
			parent = "?"
		}
		children[parent] = append(children[parent], s)
	}
	var b strings.Builder
	var write func(parent, indent, mark string)
	write = func(parent, indent, mark string) {
		for _, s := range children[parent] {
			fmt.Fprintf(&b, "%s%s%s %s\n", indent, mark, s.Service, s.Name)
			write(s.SpanID, indent+"  ", "")
		}
	}
	write("", "", "")
	write("?", "", "(orphan) ")
	return b.String()
}

// Receiver takes spans by OTLP and keeps all of them. Its methods may be called concurrently.
type Receiver struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu      sync.Mutex
	spans   []Span
	changed chan struct{} // closed and replaced when spans come
}

func newReceiver(t testing.TB) *Receiver {
	t.Helper()
	r, stop, err := ReceiveSpans(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return r
}

// ReceiveSpans starts a receiver at an address, host:port, for processes that a test starts by itself. It runs until stop is
// called; ctx bounds the start alone.
func ReceiveSpans(ctx context.Context, address string) (r *Receiver, stop func(), err error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	r = &Receiver{address: lis.Addr().String(), changed: make(chan struct{})}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	return r, func() { server.Stop(); <-done }, nil
}

// provider makes the tracer provider of a service in the test's process.
func (r *Receiver) provider(ctx context.Context, service string) (trace.TracerProvider, func(context.Context) error, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(r.address), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(50*time.Millisecond), sdktrace.WithMaxQueueSize(1<<16)),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName(service))))
	return provider, provider.Shutdown, nil
}

// Export implements the OTLP service.
func (r *Receiver) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := attributes(rs.GetResource().GetAttributes())["service.name"]
		for _, scope := range rs.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, newSpan(service, s))
			}
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func newSpan(service string, s *tracev1.Span) Span {
	span := Span{
		Service: service, Name: s.GetName(),
		TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()),
		ParentID: hex.EncodeToString(s.GetParentSpanId()),
		Start:    time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: attributes(s.GetAttributes()),
		Failed:     s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR,
	}
	for _, l := range s.GetLinks() {
		span.Links = append(span.Links, Link{hex.EncodeToString(l.GetTraceId()), hex.EncodeToString(l.GetSpanId())})
	}
	return span
}

func attributes(list []*commonv1.KeyValue) map[string]string {
	out := make(map[string]string, len(list))
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out[kv.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			out[kv.GetKey()] = fmt.Sprint(kv.GetValue())
		}
	}
	return out
}

// Trace returns the spans of a trace by time of start; of all traces for the empty id.
func (r *Receiver) Trace(id string) []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Span
	for _, s := range r.spans {
		if id == "" || s.TraceID == id {
			out = append(out, s)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Start.Before(out[j].Start) })
	return out
}

// changes returns a channel that is closed when more spans come.
func (r *Receiver) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
