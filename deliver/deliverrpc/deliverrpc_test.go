package deliverrpc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/deliverrpc"
	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/proto/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "01934f5e-7a10-7cc0-8000-0123456789ab"

// fakeSpool gives jobs to the one worker that connects, answers its permits and keeps its results.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	jobs    []*spoolv1.Job
	content []byte
	grant   bool
	results chan *spoolv1.Result
	mu      sync.Mutex
	permits int
}

func (f *fakeSpool) Work(rpc grpc.BidiStreamingServer[spoolv1.WorkRequest, spoolv1.WorkResponse]) error {
	give := func(frames ...*spoolv1.SpoolFrame) error {
		return rpc.Send(&spoolv1.WorkResponse{Frames: frames})
	}
	if err := give(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Hello{Hello: &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: "s"}}}); err != nil {
		return err
	}
	for {
		req, err := rpc.Recv()
		if err != nil {
			return err
		}
		for _, frame := range req.GetFrames() {
			var answer *spoolv1.SpoolFrame
			switch kind := frame.GetKind().(type) {
			case *spoolv1.WorkerFrame_Credits:
				for ; len(f.jobs) > 0; f.jobs = f.jobs[1:] {
					if err := give(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Job{Job: f.jobs[0]}}); err != nil {
						return err
					}
				}
			case *spoolv1.WorkerFrame_PermitRequest:
				f.mu.Lock()
				f.permits++
				f.mu.Unlock()
				answer = &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_PermitAnswer{PermitAnswer: &spoolv1.PermitAnswer{Token: kind.PermitRequest.GetToken(), Granted: f.grant}}}
			case *spoolv1.WorkerFrame_Result:
				f.results <- kind.Result
				answer = &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_ResultAck{ResultAck: &spoolv1.ResultAck{Token: kind.Result.GetToken(), Status: spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED}}}
			}
			if answer != nil {
				if err := give(answer); err != nil {
					return err
				}
			}
		}
	}
}

func (f *fakeSpool) ReadContent(req *spoolv1.ReadContentRequest, rpc grpc.ServerStreamingServer[spoolv1.ReadContentResponse]) error {
	if f.content == nil {
		return errors.New("no content")
	}
	for data := f.content[req.GetOffset():]; len(data) > 0; {
		n := min(len(data), 10_000)
		if err := rpc.Send(&spoolv1.ReadContentResponse{Data: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// work runs a real worker against the fake spool until each job has a result.
func work(t *testing.T, f *fakeSpool, d *deliver.Deliverer, tp trace.TracerProvider) []*spoolv1.Result {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.results = make(chan *spoolv1.Result, 100)
	for _, job := range f.jobs {
		job.Token = []byte("token " + job.GetMessageId())
		job.Lease = durationpb.New(time.Minute)
		job.Trace = &mailv1.TraceContext{Traceparent: "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"}
	}
	n := len(f.jobs)
	srv := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(srv, f)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() {
		ran <- worker.Run(ctx, conn, spoolv1.Stage_STAGE_DELIVER, 4, deliverrpc.Handler(d),
			worker.WithTracerProvider(tp), worker.WithLogger(slog.New(slog.DiscardHandler)))
	}()
	var results []*spoolv1.Result
	for range n {
		select {
		case r := <-f.results:
			results = append(results, r)
		case <-time.After(20 * time.Second):
			t.Fatal("no result came")
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	srv.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return results
}

func newDeliverer(t *testing.T, tp trace.TracerProvider, routes ...deliver.Route) *deliver.Deliverer {
	t.Helper()
	cfg := deliver.DefaultConfig()
	cfg.Hostname = "mx.test"
	cfg.Routes = routes
	for i := range cfg.Routes {
		if cfg.Routes[i].Match == nil {
			cfg.Routes[i].Match = []pattern.Pattern{pattern.MustParse("*")}
		}
	}
	d, err := deliver.New(cfg, deliver.Options{Logger: slog.New(slog.DiscardHandler), TracerProvider: tp})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func deliverJob(content string, inline bool) *spoolv1.Job {
	job := &spoolv1.Job{
		MessageId:   id,
		Envelope:    &mailv1.Envelope{Sender: "s@from.test", Recipients: []*mailv1.Recipient{{Address: "no@other.test"}, {Address: "ann@to.test"}}},
		ContentSize: int64(len(content)),
		Work:        &spoolv1.Job_Deliver{Deliver: &spoolv1.DeliverWork{Destination: "to.test", Recipients: []int32{1}, Attempt: 3}},
	}
	if inline {
		job.Content = []byte(content)
	}
	return job
}

func TestDeliverJob(t *testing.T) {
	large := "Subject: x\r\n\r\n" + strings.Repeat("0123456789\r\n", 50_000)
	for name, c := range map[string]struct {
		content string
		inline  bool
		grant   bool
		want    mailv1.ResultStatus
	}{
		"inline":         {"Subject: x\r\n\r\n", true, true, mailv1.ResultStatus_RESULT_STATUS_DELIVERED},
		"empty":          {"", true, true, mailv1.ResultStatus_RESULT_STATUS_DELIVERED},
		"read":           {large, false, true, mailv1.ResultStatus_RESULT_STATUS_DELIVERED},
		"permit refused": {"Subject: x\r\n\r\n", true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			f := &fakeSpool{jobs: []*spoolv1.Job{deliverJob(c.content, c.inline)}, content: []byte(c.content), grant: c.grant}
			tp := &recorder{}
			d := newDeliverer(t, tp, deliver.Route{Via: deliver.ViaMaildir, Maildir: deliver.MaildirRoute{Path: root}})
			r := work(t, f, d, tp)[0]
			files, err := filepath.Glob(filepath.Join(root, "to.test", "ann", "new", "*"))
			if err != nil {
				t.Fatal(err)
			}
			if !c.grant {
				if got := r.GetDeliver().GetAttempt().GetResults(); len(files) != 0 || len(got) != 1 || got[0].GetStatus() != mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED {
					t.Errorf("delivered without a permit: %v, %v", files, r)
				}
				return
			}
			a := r.GetDeliver().GetAttempt()
			if a.GetDestination() != "to.test" || a.GetNumber() != 3 || len(a.GetResults()) != 1 || a.GetResults()[0].GetRecipient() != 1 || a.GetResults()[0].GetStatus() != c.want {
				t.Errorf("result %v", r)
			}
			if len(files) != 1 {
				t.Fatalf("files %v", files)
			}
			got, err := os.ReadFile(files[0])
			if err != nil || !bytes.HasSuffix(got, []byte("Delivered-To: ann@to.test\r\n"+c.content)) {
				t.Errorf("%d octets, %v", len(got), err)
			}
			if f.permits != 1 {
				t.Errorf("%d permits", f.permits)
			}
			tp.want(t, "deliver.maildir", "deliver.attempt", trace.SpanKindInternal, codes.Unset)
			tp.want(t, "deliver.attempt", "", trace.SpanKindInternal, codes.Unset)
		})
	}
}

// Content that can't be read is a JobFailure: the job is given out again (case A4).
func TestUnreadableContent(t *testing.T) {
	f := &fakeSpool{jobs: []*spoolv1.Job{deliverJob("Subject: x\r\n\r\n", false)}, grant: true}
	d := newDeliverer(t, noop.NewTracerProvider(), deliver.Route{Via: deliver.ViaMaildir, Maildir: deliver.MaildirRoute{Path: t.TempDir()}})
	if r := work(t, f, d, noop.NewTracerProvider())[0]; r.GetFailure().GetReason() == "" || f.permits != 0 {
		t.Errorf("result %v, %d permits", r, f.permits)
	}
}

func TestSMTPJobAndBounceJob(t *testing.T) {
	sink := smtpsink.Start(t, nil, func(step, _ string) *smtpsink.Action {
		if step == "RCPT" {
			return &smtpsink.Action{Reply: "550 5.1.1 no such user"}
		}
		return nil
	})
	bounce := deliverJob("Subject: x\r\n\r\n", true)
	bounce.MessageId = "01934f5e-7a10-7cc0-8000-00000000ffff"
	bounce.Work = &spoolv1.Job_Bounce{Bounce: &spoolv1.BounceWork{Results: []*mailv1.RecipientResult{{
		Recipient: 0, Status: mailv1.ResultStatus_RESULT_STATUS_TEMPORARY, Reply: &mailv1.Reply{Code: 451, Text: "later"},
	}}}}
	f := &fakeSpool{jobs: []*spoolv1.Job{deliverJob("Subject: x\r\n\r\n", true), bounce}, grant: true}
	tp := &recorder{}
	results := work(t, f, newDeliverer(t, tp, deliver.Route{Via: deliver.ViaSMTP, SMTP: deliver.SMTPRoute{Address: sink.Addr}}), tp)
	for _, r := range results {
		n := r.GetDeliver().GetNotifications()
		if len(n) != 1 || n[0].GetEnvelope().GetSender() != "" || n[0].GetEnvelope().GetRecipients()[0].GetAddress() != "s@from.test" {
			t.Fatalf("result %v", r)
		}
		want := "ann@to.test"
		if len(r.GetDeliver().GetAttempt().GetResults()) == 0 {
			want = "no@other.test"
		}
		if !bytes.Contains(n[0].GetContent(), []byte("Final-Recipient: rfc822; "+want+"\r\n")) {
			t.Errorf("content %s", n[0].GetContent())
		}
	}
	tp.want(t, "deliver.smtp", "deliver.attempt", trace.SpanKindClient, codes.Error)
	tp.want(t, "deliver.attempt", "", trace.SpanKindInternal, codes.Error)
	tp.want(t, "deliver.bounce", "", trace.SpanKindInternal, codes.Unset)
}

// recorder is a small tracer provider that keeps its spans, since domains don't import the SDK.
type recorder struct {
	embedded.TracerProvider
	mu    sync.Mutex
	spans []*span
}

type span struct {
	noop.Span
	r      *recorder
	name   string
	kind   trace.SpanKind
	parent string
	status codes.Code
	attrs  map[attribute.Key]attribute.Value
}

type tracer struct {
	embedded.Tracer
	r *recorder
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	s := &span{r: t.r, name: name, kind: cfg.SpanKind(), attrs: map[attribute.Key]attribute.Value{}}
	if parent, ok := trace.SpanFromContext(ctx).(*span); ok {
		s.parent = parent.name
	}
	s.SetAttributes(cfg.Attributes()...)
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.spans = append(t.r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetStatus(code codes.Code, _ string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.status = code
}

func (s *span) SetAttributes(attrs ...attribute.KeyValue) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, a := range attrs {
		s.attrs[a.Key] = a.Value
	}
}

// want looks for one span; parent "" means the worker's own.
func (r *recorder) want(t *testing.T, name, parent string, kind trace.SpanKind, status codes.Code) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.name != name {
			continue
		}
		if parent == "" {
			parent = "deliver.job"
		}
		internal := kind == trace.SpanKindInternal && s.kind == trace.SpanKindUnspecified
		if s.parent != parent || (s.kind != kind && !internal) || s.status != status {
			t.Errorf("span %s: parent %q, kind %v, status %v", name, s.parent, s.kind, s.status)
		}
		if !strings.HasPrefix(s.attrs["rohrpost.message.id"].AsString(), "01934f5e") {
			t.Errorf("span %s does not name the message: %v", name, s.attrs)
		}
		return
	}
	t.Errorf("no span %s", name)
}
