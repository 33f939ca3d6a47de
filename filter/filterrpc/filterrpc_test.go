package filterrpc_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rohrpost/rohrpost/filter"
	"github.com/rohrpost/rohrpost/filter/filterrpc"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder remembers the spans that were started.
type recorder struct {
	noop.TracerProvider
	mu    sync.Mutex
	spans map[string]*span
}

type span struct {
	noop.Span
	name   string
	id     trace.SpanContext
	parent trace.SpanContext
	mu     sync.Mutex
	attrs  map[attribute.Key]attribute.Value
	ended  bool
}

type tracer struct {
	noop.Tracer
	r *recorder
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	parent := trace.SpanContextFromContext(ctx)
	var id trace.SpanID
	binary.BigEndian.PutUint64(id[:], uint64(len(t.r.spans)+1))
	s := &span{
		name: name, parent: parent, attrs: map[attribute.Key]attribute.Value{},
		id: trace.NewSpanContext(trace.SpanContextConfig{TraceID: parent.TraceID(), SpanID: id}),
	}
	cfg := trace.NewSpanStartConfig(opts...)
	s.SetAttributes(cfg.Attributes()...)
	t.r.spans[name] = s
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext { return s.id }
func (s *span) IsRecording() bool              { return true }
func (s *span) End(...trace.SpanEndOption)     { s.ended = true }

func (s *span) SetAttributes(attrs ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attrs {
		s.attrs[a.Key] = a.Value
	}
}

// fakeSpool gives out one job and takes its result.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	job     *spoolv1.Job
	result  chan *spoolv1.Result
	content string

	mu    sync.Mutex
	reads [][2]int64 // offset and length
}

func (f *fakeSpool) ReadContent(req *spoolv1.ReadContentRequest, rpc spoolv1.SpoolService_ReadContentServer) error {
	f.mu.Lock()
	f.reads = append(f.reads, [2]int64{req.GetOffset(), req.GetLength()})
	f.mu.Unlock()
	for data := []byte(f.content[req.GetOffset():][:req.GetLength()]); len(data) > 0; {
		n := min(len(data), 100_000)
		if err := rpc.Send(&spoolv1.ReadContentResponse{Data: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (f *fakeSpool) Work(rpc grpc.BidiStreamingServer[spoolv1.WorkRequest, spoolv1.WorkResponse]) error {
	hello := &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Hello{Hello: &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: "s"}}}
	job := &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Job{Job: f.job}}
	if err := rpc.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{hello, job}}); err != nil {
		return err
	}
	for {
		req, err := rpc.Recv()
		if err != nil {
			return err
		}
		for _, frame := range req.GetFrames() {
			if r := frame.GetResult(); r != nil {
				f.result <- r
				ack := &spoolv1.ResultAck{Token: r.GetToken(), Status: spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED}
				_ = rpc.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{{Kind: &spoolv1.SpoolFrame_ResultAck{ResultAck: ack}}}})
			}
		}
	}
}

// do has a worker do one job and returns its result.
func do(t *testing.T, job *spoolv1.Job, tp trace.TracerProvider) *spoolv1.Result {
	t.Helper()
	return doWith(t, &fakeSpool{job: job, result: make(chan *spoolv1.Result, 1)}, tp)
}

func doWith(t *testing.T, spool *fakeSpool, tp trace.TracerProvider) *spoolv1.Result {
	t.Helper()
	cfg := filter.DefaultConfig()
	cfg.Rules = []filter.Rule{{Name: "greeting", When: "message.subject == 'Hi'", Action: filter.Hold}}
	f, err := filter.New(cfg, filter.Options{Resolver: emptyDNS{}, TracerProvider: tp, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(server, spool)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, conn, spoolv1.Stage_STAGE_FILTER, 1, filterrpc.Handler(f),
			worker.WithTracerProvider(tp), worker.WithLogger(slog.New(slog.DiscardHandler)))
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	}()
	select {
	case r := <-spool.result:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no result")
		return nil
	}
}

// key is one that verifies nothing.
var key = base64.StdEncoding.EncodeToString(make([]byte, 32))

// emptyDNS has no records but a key.
type emptyDNS struct{}

func (emptyDNS) LookupTXT(_ context.Context, name string) ([]string, error) {
	if name == "s._domainkey.a.example" {
		return []string{"v=DKIM1; k=ed25519; p=" + key}, nil
	}
	return nil, nil
}
func (emptyDNS) LookupMX(context.Context, string) ([]*net.MX, error)        { return nil, nil }
func (emptyDNS) LookupIPAddr(context.Context, string) ([]net.IPAddr, error) { return nil, nil }
func (emptyDNS) LookupAddr(context.Context, string) ([]string, error)       { return nil, io.EOF }

func testJob() *spoolv1.Job {
	content := []byte("From: a@a.example\r\nSubject: Hi\r\n\r\nHello\r\n")
	return &spoolv1.Job{
		Token: []byte("t1"), MessageId: "0193f000-0000-7000-8000-000000000001",
		Envelope: &mailv1.Envelope{
			Sender:     "a@a.example",
			Recipients: []*mailv1.Recipient{{Address: "b@b.example"}, {Address: "c@b.example"}},
			Reception:  &mailv1.Reception{ClientIp: "192.0.2.1", Helo: "x.example"},
		},
		Trace:       &mailv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		Content:     content,
		ContentSize: int64(len(content)),
		Work:        &spoolv1.Job_Filter{Filter: &spoolv1.FilterWork{Parsed: &mailv1.ParsedMessage{Subject: "Hi"}}},
	}
}

func TestHandler(t *testing.T) {
	rec := &recorder{spans: map[string]*span{}}
	result := do(t, testJob(), rec)
	verdict := result.GetFilter().GetVerdict()
	if len(verdict.GetRecipients()) != 2 {
		t.Fatalf("got %v", result)
	}
	for _, r := range verdict.GetRecipients() {
		if r.GetAction() != mailv1.Action_ACTION_HOLD || r.GetRule() != "greeting" {
			t.Errorf("got %v", r)
		}
	}

	// The tree of spans, all in the message's trace and with its id.
	rec.mu.Lock()
	defer rec.mu.Unlock()
	tree := map[string]string{}
	for name, s := range rec.spans {
		for parent, p := range rec.spans {
			if p.id.SpanID() == s.parent.SpanID() {
				tree[name] = parent
			}
		}
		if s.id.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is in trace %s", name, s.id.TraceID())
		}
		if s.attrs["rohrpost.message.id"].AsString() != testJob().GetMessageId() || !s.ended {
			t.Errorf("%s: attributes %v, ended %v", name, s.attrs, s.ended)
		}
	}
	want := map[string]string{"filter.judge": "filter.job", "filter.spf": "filter.judge", "filter.dkim": "filter.judge"}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Error(diff)
	}
	judged := rec.spans["filter.judge"].attrs
	if got := judged["rohrpost.filter.actions"].AsStringSlice(); len(got) != 1 || got[0] != "hold" {
		t.Errorf("actions %v", got)
	}
	if got := judged["rohrpost.filter.spf"].AsString(); got != "none" {
		t.Errorf("spf %q", got)
	}
}

// Of large content only the head is fetched, unless more of it is read.
func TestLargeContent(t *testing.T) {
	head := "From: a@a.example\r\nSubject: Hi\r\n"
	body := "\r\n" + strings.Repeat("Hello\r\n", 50_000)
	for name, tt := range map[string]struct {
		header string
		want   [][2]int64 // offsets and lengths
	}{
		"no signature": {head, [][2]int64{{0, 64 << 10}}},
		"a signature": {
			"DKIM-Signature: v=1; a=ed25519-sha256; d=a.example; s=s; h=from; bh=" + key + "; b=" + key + "\r\n" + head,
			[][2]int64{{0, 64 << 10}, {64 << 10, 350_196 - 64<<10}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob()
			job.Content, job.ContentSize = nil, int64(len(tt.header)+len(body))
			spool := &fakeSpool{job: job, content: tt.header + body, result: make(chan *spoolv1.Result, 1)}
			if r := doWith(t, spool, noop.NewTracerProvider()); r.GetFilter() == nil {
				t.Fatalf("got %v", r)
			}
			spool.mu.Lock()
			defer spool.mu.Unlock()
			if diff := cmp.Diff(tt.want, spool.reads); diff != "" {
				t.Errorf("of %d octets: %s", job.ContentSize, diff)
			}
		})
	}
}

// A job of another stage is a failure of the job, not a verdict.
func TestWrongStage(t *testing.T) {
	job := testJob()
	job.Work = &spoolv1.Job_Parse{Parse: &spoolv1.ParseWork{}}
	if r := do(t, job, noop.NewTracerProvider()); r.GetFailure() == nil {
		t.Errorf("got %v, want a failure", r)
	}
}
