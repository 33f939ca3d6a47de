package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// fakeSpool is the spool's side of Work, played by the test frame by frame.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	name    string
	peers   []string
	streams chan *fakeStream
	content []byte
}

type fakeStream struct {
	grpc.BidiStreamingServer[spoolv1.WorkRequest, spoolv1.WorkResponse]
	frames chan *spoolv1.WorkerFrame
	end    chan struct{}
	once   sync.Once
}

func (f *fakeSpool) Work(rpc grpc.BidiStreamingServer[spoolv1.WorkRequest, spoolv1.WorkResponse]) error {
	s := &fakeStream{BidiStreamingServer: rpc, frames: make(chan *spoolv1.WorkerFrame, 1000), end: make(chan struct{})}
	s.give(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Hello{Hello: &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: f.name, Peers: f.peers}}})
	f.streams <- s
	go func() {
		for {
			req, err := rpc.Recv()
			if err != nil {
				s.cut()
				return
			}
			for _, frame := range req.GetFrames() {
				s.frames <- frame
			}
		}
	}()
	<-s.end
	return errors.New("cut by the test")
}

func (f *fakeSpool) ReadContent(req *spoolv1.ReadContentRequest, rpc grpc.ServerStreamingServer[spoolv1.ReadContentResponse]) error {
	data := f.content[req.GetOffset():]
	for data = data[:min(int64(len(data)), req.GetLength())]; len(data) > 0; {
		n := min(len(data), 1000)
		if err := rpc.Send(&spoolv1.ReadContentResponse{Data: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (s *fakeStream) cut() { s.once.Do(func() { close(s.end) }) }

func (s *fakeStream) give(f *spoolv1.SpoolFrame) {
	_ = s.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{f}})
}

func (s *fakeStream) job(token string, job *spoolv1.Job) {
	job.Token = []byte(token)
	s.give(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Job{Job: job}})
}

// next returns the next frame that pick accepts, dropping others.
func next[T any](t *testing.T, s *fakeStream, pick func(*spoolv1.WorkerFrame) (T, bool)) T {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f := <-s.frames:
			if v, ok := pick(f); ok {
				return v
			}
		case <-timeout:
			t.Fatal("the frame that was waited for did not come")
		}
	}
}

func result(f *spoolv1.WorkerFrame) (*spoolv1.Result, bool) {
	return f.GetResult(), f.GetResult() != nil
}

func credits(f *spoolv1.WorkerFrame) (int32, bool) {
	return f.GetCredits().GetCount(), f.GetCredits() != nil
}

func ack(token []byte, status spoolv1.ResultAckStatus) *spoolv1.SpoolFrame {
	return &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_ResultAck{ResultAck: &spoolv1.ResultAck{Token: token, Status: status}}}
}

func permit(token []byte, granted bool) *spoolv1.SpoolFrame {
	return &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_PermitAnswer{PermitAnswer: &spoolv1.PermitAnswer{Token: token, Granted: granted}}}
}

func serve(t *testing.T, f *fakeSpool) string {
	t.Helper()
	f.streams = make(chan *fakeStream, 10)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, f, ln)
	return ln.Addr().String()
}

// serveOn returns what ends the spool.
func serveOn(t *testing.T, f *fakeSpool, ln net.Listener) func() {
	t.Helper()
	server := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(server, f)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// start runs a worker against the fake and returns its first stream.
func start(t *testing.T, f *fakeSpool, stage spoolv1.Stage, capacity int, h worker.Handler, opts ...worker.Option) (*fakeStream, func()) {
	t.Helper()
	conn, err := dial(serve(t, f))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, conn, stage, capacity, h, opts...) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return")
		}
		_ = conn.Close()
	})
	t.Cleanup(stop)
	return stream(t, f), stop
}

func stream(t *testing.T, f *fakeSpool) *fakeStream {
	t.Helper()
	select {
	case s := <-f.streams:
		return s
	case <-time.After(patience):
		t.Fatal("the worker opened no stream")
		return nil
	}
}

func delivered() *spoolv1.Result {
	return &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{}}}
}

func TestJobsUseCreditsAndReturnThem(t *testing.T) {
	f := &fakeSpool{name: "a"}
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 2, func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
		switch job.GetMessageId() {
		case "panic":
			panic("bad message")
		case "error":
			return nil, errors.New("no disk")
		}
		return delivered(), nil
	})
	if n := next(t, s, credits); n != 2 {
		t.Fatalf("granted %d credits, want the capacity", n)
	}
	for _, id := range []string{"good", "panic", "error", "good"} {
		s.job("t-"+id, &spoolv1.Job{MessageId: id})
		res := next(t, s, result)
		if string(res.GetToken()) != "t-"+id {
			t.Fatalf("result of %q has token %q", id, res.GetToken())
		}
		if failed := res.GetFailure() != nil; failed != (id != "good") {
			t.Errorf("%s: got %v", id, res)
		}
		s.give(ack(res.GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
		if n := next(t, s, credits); n != 1 {
			t.Errorf("granted %d credits after a result, want 1", n)
		}
	}
}

// A result that no message can carry fails its job and no other (promise P5).
func TestResultThatCannotBeSent(t *testing.T) {
	f := &fakeSpool{name: "a"}
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 2, func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
		text := "fine"
		switch job.GetMessageId() {
		case "error":
			return nil, errors.New("read \xff\x00" + strings.Repeat("ü", 10_000))
		case "octets":
			text = "\xff"
		case "large":
			text = strings.Repeat("x", 3<<20)
		}
		return &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{Attempt: &mailv1.Attempt{Remote: text}}}}, nil
	})
	for _, id := range []string{"octets", "good", "large", "error"} {
		s.job("t-"+id, &spoolv1.Job{MessageId: id})
		if id == "octets" || id == "large" {
			s = stream(t, f) // presenting it broke the stream
		}
		res := next(t, s, result)
		if failed := res.GetFailure() != nil; string(res.GetToken()) != "t-"+id || failed != (id != "good") {
			t.Errorf("%s: got %.200v", id, res)
		}
		if reason := res.GetFailure().GetReason(); len(reason) > 1100 || strings.Contains(reason, "\x00") {
			t.Errorf("%s: a reason of %d octets: %q", id, len(reason), reason)
		}
		s.give(ack(res.GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	}
}

func TestPermittedResultIsPresentedOnTheNextStream(t *testing.T) {
	f := &fakeSpool{name: "a"}
	finish := make(chan struct{})
	lost := make(chan error, 1)
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 2, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		if job.GetMessageId() == "unpermitted" {
			<-ctx.Done()
			lost <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		if err := job.Permit(ctx); err != nil {
			return nil, err
		}
		<-finish
		return delivered(), nil
	})
	s.job("t1", &spoolv1.Job{MessageId: "permitted"})
	s.job("t2", &spoolv1.Job{MessageId: "unpermitted"})
	token := next(t, s, func(f *spoolv1.WorkerFrame) ([]byte, bool) {
		return f.GetPermitRequest().GetToken(), f.GetPermitRequest() != nil
	})
	s.give(permit(token, true))
	s.job("t3", &spoolv1.Job{MessageId: "unpermitted"}) // proves that the permit was read before the cut
	s.cut()
	if err := <-lost; err == nil {
		t.Error("a job without permit was not cancelled when its stream broke")
	}
	s = stream(t, f)
	close(finish)
	res := next(t, s, result)
	if string(res.GetToken()) != "t1" || res.GetDeliver() == nil {
		t.Fatalf("got %v, want the result of the permitted job", res)
	}
	// A spool that can't judge it yet gets it again; after the acknowledgement it is forgotten.
	s.give(ack(res.GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_AGAIN))
	if res = next(t, s, result); string(res.GetToken()) != "t1" {
		t.Fatalf("got %v again, want t1", res)
	}
	s.give(ack(res.GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
}

func TestPermitRefused(t *testing.T) {
	f := &fakeSpool{name: "a"}
	got := make(chan error, 1)
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 1, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		err := job.Permit(ctx)
		got <- err
		return nil, err
	})
	s.job("t1", &spoolv1.Job{})
	s.give(permit([]byte("other"), true))
	s.give(permit([]byte("t1"), false))
	if err := <-got; !errors.Is(err, worker.ErrNoPermit) {
		t.Errorf("Permit = %v, want ErrNoPermit", err)
	}
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_STALE))
}

func TestContentInlineAndRemote(t *testing.T) {
	content := make([]byte, 10_500)
	for i := range content {
		content[i] = byte(i * 7)
	}
	f := &fakeSpool{name: "a", content: content}
	type read struct {
		data []byte
		err  error
	}
	got := make(chan read, 1)
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 1, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		r, err := job.Open(ctx, 100)
		if err != nil {
			got <- read{nil, err}
			return nil, err
		}
		data, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || job.GetContentSize() > int64(len(content)) {
			got <- read{data, err}
			return delivered(), nil
		}
		if r, err = job.OpenPart(ctx, 100, 5_000); err != nil {
			return nil, err
		}
		part, err := io.ReadAll(r)
		if string(part) != string(content[100:][:5_000]) {
			err = fmt.Errorf("read %d octets of a part, %w", len(part), err)
		}
		if _, outside := job.OpenPart(ctx, 100, job.GetContentSize()); outside == nil {
			err = errors.New("a part that ends behind the content was opened")
		}
		got <- read{data, err}
		return delivered(), r.Close()
	})
	for name, job := range map[string]*spoolv1.Job{
		"inline": {Content: content, ContentSize: int64(len(content))},
		"remote": {ContentSize: int64(len(content))},
	} {
		s.job("t-"+name, job)
		r := <-got
		if r.err != nil || string(r.data) != string(content[100:]) {
			t.Errorf("%s: read %d octets, %v", name, len(r.data), r.err)
		}
		s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	}
	// Content that ends early must not look whole.
	s.job("t-short", &spoolv1.Job{ContentSize: int64(len(content)) + 1})
	if r := <-got; !errors.Is(r.err, io.ErrUnexpectedEOF) {
		t.Errorf("short content: read %d octets, %v", len(r.data), r.err)
	}
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
}

func TestDrainFinishesWhatIsHeld(t *testing.T) {
	f := &fakeSpool{name: "a"}
	finish := make(chan struct{})
	started := make(chan struct{})
	s, stop := start(t, f, spoolv1.Stage_STAGE_PARSER, 1, func(context.Context, *worker.Job) (*spoolv1.Result, error) {
		close(started)
		<-finish
		return &spoolv1.Result{Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{}}}, nil
	})
	s.job("t1", &spoolv1.Job{})
	<-started
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	next(t, s, drains)
	close(finish)
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("the worker did not stop after its last result was acknowledged")
	}
}

func TestProgressRenewsTheLease(t *testing.T) {
	f := &fakeSpool{name: "a"}
	finish := make(chan struct{})
	s, _ := start(t, f, spoolv1.Stage_STAGE_PARSER, 1, func(context.Context, *worker.Job) (*spoolv1.Result, error) {
		<-finish
		return delivered(), nil
	}, worker.WithName("w"))
	job := &spoolv1.Job{Lease: lease(300 * time.Millisecond)}
	s.job("t1", job)
	for range 2 {
		next(t, s, func(f *spoolv1.WorkerFrame) (bool, bool) { return true, string(f.GetProgress().GetToken()) == "t1" })
	}
	close(finish)
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
}

// A handler that heeds its context ends at the job time-out; one that hangs is no longer reported as working.
func TestJobTimeout(t *testing.T) {
	f := &fakeSpool{name: "a"}
	late, hang := make(chan struct{}), make(chan struct{})
	s, _ := start(t, f, spoolv1.Stage_STAGE_DELIVER, 2, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		if job.GetMessageId() == "hangs" {
			<-ctx.Done()
			close(late)
			<-hang
			return delivered(), nil
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, worker.WithJobTimeout(50*time.Millisecond))
	s.job("t1", &spoolv1.Job{MessageId: "heeds"})
	res := next(t, s, result)
	if res.GetFailure() == nil {
		t.Errorf("got %v, want a failure", res)
	}
	s.give(ack(res.GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))

	s.job("t2", &spoolv1.Job{MessageId: "hangs", Lease: lease(300 * time.Millisecond)})
	<-late
	s.job("t3", &spoolv1.Job{MessageId: "heeds"}) // what was said of t2 before its time was over comes before this result
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED))
	quiet := time.After(time.Second) // three rounds of progress
	for waiting := true; waiting; {
		select {
		case f := <-s.frames:
			if f.GetProgress() != nil {
				t.Errorf("a hanging job is reported as being worked at")
			}
		case <-quiet:
			waiting = false
		}
	}
	close(hang)
	s.give(ack(next(t, s, result).GetToken(), spoolv1.ResultAckStatus_RESULT_ACK_STATUS_STALE))
}

func lease(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
