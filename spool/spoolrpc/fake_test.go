package spoolrpc

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine is a spool that does what the test says.
type fakeEngine struct {
	submit  func(sub spool.Submission, content *fakeUpload, done func(spool.Receipt, error)) // nil: accept at once
	write   func(ctx context.Context, u *fakeUpload, p []byte) error                         // nil: keep
	join    func(w *fakeWorker) error                                                        // called before Join returns
	content func(ctx context.Context, token []byte, offset, length int64, take func([]byte) error) error

	mu        sync.Mutex
	hello     spool.Hello
	noHello   bool
	submitted []spool.Submission
	uploads   []*fakeUpload
	aborted   []spool.ID
	workers   chan *fakeWorker
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		hello:   spool.Hello{Name: "spool-1", Incarnation: 7, Time: time.Unix(1e9, 0), Peers: []string{"b:1"}},
		workers: make(chan *fakeWorker, 8),
	}
}

func (e *fakeEngine) Hello() (spool.Hello, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hello, !e.noHello
}

func (e *fakeEngine) Submit(sub spool.Submission, content upload, done func(spool.Receipt, error)) {
	up, _ := content.(*fakeUpload)
	e.mu.Lock()
	e.submitted = append(e.submitted, sub)
	e.mu.Unlock()
	if e.submit != nil {
		e.submit(sub, up, done)
		return
	}
	done(spool.Receipt{}, nil)
}

func (e *fakeEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.submitted)
}

func (e *fakeEngine) NewUpload(context.Context, spool.ID, int64) (upload, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := &fakeUpload{engine: e, aborts: make(chan struct{}, 8)}
	e.uploads = append(e.uploads, u)
	return u, nil
}

func (e *fakeEngine) Abort(id spool.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.aborted = append(e.aborted, id)
}

func (e *fakeEngine) Join(stage spool.Stage, name, _ string, sink spool.WorkerSink) (worker, error) {
	w := &fakeWorker{stage: stage, name: name, sink: flushing{sink}, calls: make(chan string, 1<<17), left: make(chan struct{})}
	if e.join != nil {
		if err := e.join(w); err != nil {
			return nil, err
		}
	}
	e.workers <- w
	return w, nil
}

func (e *fakeEngine) ReadContent(ctx context.Context, token []byte, offset, length int64, take func([]byte) error) error {
	return e.content(ctx, token, offset, length, take)
}

type fakeUpload struct {
	engine *fakeEngine
	mu     sync.Mutex
	data   bytes.Buffer
	aborts chan struct{}
}

func (u *fakeUpload) Write(ctx context.Context, p []byte) error {
	if u.engine.write != nil {
		if err := u.engine.write(ctx, u, p); err != nil {
			return err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.data.Write(p)
	return nil
}

func (u *fakeUpload) bytes() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.data.Bytes())
}

func (u *fakeUpload) Abort() { u.aborts <- struct{}{} }

type fakeWorker struct {
	stage spool.Stage
	name  string
	sink  spool.WorkerSink
	calls chan string
	left  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	results []spool.WorkResult
}

func (w *fakeWorker) Grant(int)                  { w.calls <- "grant" }
func (w *fakeWorker) Progress(token []byte)      { w.calls <- "progress " + string(token) }
func (w *fakeWorker) RequestPermit(token []byte) { w.calls <- "permit " + string(token) }
func (w *fakeWorker) Drain()                     { w.calls <- "drain" }
func (w *fakeWorker) Leave()                     { w.once.Do(func() { close(w.left) }) }

func (w *fakeWorker) Result(token []byte, result spool.WorkResult) {
	w.mu.Lock()
	w.results = append(w.results, result)
	w.mu.Unlock()
	w.calls <- "result " + string(token)
}

// dial serves the engine over an in-memory connection with the windows of production.
func dial(t *testing.T, e engine, opts Options) (spoolv1.SpoolServiceClient, *Server) {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	srv := newServer(e, opts)
	listener := bufconn.Listen(1 << 16)
	gs := grpc.NewServer(rpcopt.ServerOptions()...)
	spoolv1.RegisterSpoolServiceServer(gs, srv)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = gs.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:bufconn", append(rpcopt.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		gs.Stop()
		<-served
	})
	return spoolv1.NewSpoolServiceClient(conn), srv
}

// testContext ends with the test, and before it hangs.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// within waits for an event that must come.
func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s within 30 s", what)
		panic("unreachable")
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func testEnvelope() *mailv1.Envelope {
	return &mailv1.Envelope{Sender: "a@a.test", Recipients: []*mailv1.Recipient{{Address: "b@b.test"}}}
}

func helloFrame() *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{
		Hello: &spoolv1.SubmitHello{ProtocolVersion: 1, Gateway: "mx.test"},
	}}
}

func beginFrame(id string) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Begin{
		Begin: &spoolv1.SubmitBegin{Id: id, Envelope: testEnvelope()},
	}}
}

func messageFrame(id string, content []byte) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{
		Message: &spoolv1.SubmitMessage{Begin: beginFrame(id).GetBegin(), Content: content},
	}}
}

func chunkFrame(id string, data []byte) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Chunk{Chunk: &spoolv1.SubmitChunk{Id: id, Data: data}}}
}

func endFrame(id string, size int64) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_End{End: &spoolv1.SubmitEnd{Id: id, Size: size}}}
}

func abortFrame(id string) *spoolv1.SubmitFrame {
	return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Abort{Abort: &spoolv1.SubmitAbort{Id: id}}}
}

// gatewayStream is a Submit stream after its hellos.
type gatewayStream struct {
	spoolv1.SpoolService_SubmitClient
	queue []*spoolv1.SubmitReplyFrame
}

func openSubmit(ctx context.Context, t *testing.T, client spoolv1.SpoolServiceClient) *gatewayStream {
	t.Helper()
	stream, err := client.Submit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayStream{SpoolService_SubmitClient: stream}
	g.send(t, helloFrame())
	if hello := g.next(t).GetHello(); hello.GetSpool() != "spool-1" || hello.GetIncarnation() != 7 ||
		hello.GetProtocolVersion() != 1 || !slices.Equal(hello.GetPeers(), []string{"b:1"}) {
		t.Fatalf("hello %v", hello)
	}
	return g
}

func (g *gatewayStream) send(t *testing.T, frames ...*spoolv1.SubmitFrame) {
	t.Helper()
	if err := g.Send(&spoolv1.SubmitRequest{Frames: frames}); err != nil {
		t.Fatal(err)
	}
}

// next is the next frame that the spool sent.
func (g *gatewayStream) next(t *testing.T) *spoolv1.SubmitReplyFrame {
	t.Helper()
	for len(g.queue) == 0 {
		resp, err := g.Recv()
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		g.queue = resp.GetFrames()
	}
	frame := g.queue[0]
	g.queue = g.queue[1:]
	return frame
}

// flushing flushes a sink at each call.
type flushing struct{ spool.WorkerSink }

func (f flushing) SendJob(job *spool.Job) {
	f.WorkerSink.SendJob(job)
	f.Flush()
}

func (f flushing) AnswerPermit(token []byte, granted bool) {
	f.WorkerSink.AnswerPermit(token, granted)
	f.Flush()
}

func (f flushing) AckResult(token []byte, status spool.AckStatus) {
	f.WorkerSink.AckResult(token, status)
	f.Flush()
}

func (f flushing) CancelJob(token []byte, reason string) {
	f.WorkerSink.CancelJob(token, reason)
	f.Flush()
}

func (f flushing) SendDrain() {
	f.WorkerSink.SendDrain()
	f.Flush()
}

func (f flushing) SendHello(hello spool.Hello) {
	f.WorkerSink.SendHello(hello)
	f.Flush()
}
