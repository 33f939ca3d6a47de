package spoolrpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spoolrpc"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// pipeline is a real spool over a store in memory, served over loopback.
type pipeline struct {
	store    *spooltest.Store
	server   *spoolrpc.Server
	grpc     *grpc.Server
	conn     *grpc.ClientConn
	stop     context.CancelFunc // ends the spool
	stopped  chan error
	received *received
}

// received is what the deliver worker was given.
type received struct {
	mu     sync.Mutex
	hashes map[string][][32]byte // by message id
	all    chan struct{}         // told of each message
}

func startPipeline(t *testing.T) *pipeline {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	p := &pipeline{
		store: spooltest.NewStore(), stopped: make(chan error, 1),
		received: &received{hashes: map[string][][32]byte{}, all: make(chan struct{}, 1000)},
	}
	engine, err := spool.New(spool.DefaultConfig(), p.store, spool.Options{Name: "spool-1", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() { p.stopped <- engine.Run(ctx) }()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.server = spoolrpc.New(engine, spoolrpc.Options{Logger: log})
	p.grpc = grpc.NewServer(rpcopt.ServerOptions()...)
	spoolv1.RegisterSpoolServiceServer(p.grpc, p.server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = p.grpc.Serve(listener)
	}()
	p.conn, err = grpc.NewClient(listener.Addr().String(), append(rpcopt.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		_ = p.conn.Close()
		p.grpc.Stop()
		<-served
	})
	for !engine.Ready() {
		time.Sleep(time.Millisecond)
	}
	return p
}

// work runs the three workers until the test ends.
func (p *pipeline) work(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for stage, handle := range map[spoolv1.Stage]worker.Handler{
		spoolv1.Stage_STAGE_PARSER: func(context.Context, *worker.Job) (*spoolv1.Result, error) {
			parsed := &mailv1.ParsedMessage{Subject: "x"}
			return &spoolv1.Result{Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{Parsed: parsed}}}, nil
		},
		spoolv1.Stage_STAGE_FILTER: func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
			if job.GetFilter().GetParsed().GetSubject() != "x" {
				return nil, errors.New("the parsed message did not come")
			}
			verdict := &mailv1.Verdict{Recipients: []*mailv1.RecipientVerdict{{Action: mailv1.Action_ACTION_ACCEPT}}}
			return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}, nil
		},
		spoolv1.Stage_STAGE_DELIVER: p.received.deliver,
	} {
		workers.Go(func() {
			err := worker.Run(ctx, p.conn, stage, 8, handle, worker.WithLogger(slog.New(slog.DiscardHandler)),
				worker.WithName(stage.String()), worker.WithDrainTimeout(time.Second))
			if err != nil {
				t.Errorf("worker: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		workers.Wait()
	})
}

func (r *received) deliver(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
	content, err := job.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, content); err != nil {
		return nil, err
	}
	if err := job.Permit(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.hashes[job.GetMessageId()] = append(r.hashes[job.GetMessageId()], [32]byte(hash.Sum(nil)))
	r.mu.Unlock()
	r.all <- struct{}{}
	attempt := &mailv1.Attempt{Destination: job.GetDeliver().GetDestination(), Number: job.GetDeliver().GetAttempt()}
	for _, index := range job.GetDeliver().GetRecipients() {
		attempt.Results = append(attempt.Results, &mailv1.RecipientResult{
			Recipient: index, Status: mailv1.ResultStatus_RESULT_STATUS_DELIVERED,
		})
	}
	return &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{Attempt: attempt}}}, nil
}

// Mail goes all the way through a real spool over real gRPC, small and large, and both ends part in peace.
func TestPipeline(t *testing.T) {
	p := startPipeline(t)
	p.work(t)
	// The chunks of a message must follow each other without a gap.
	var mu sync.Mutex
	ends := map[spool.ID]int64{}
	p.store.SetFaults(spooltest.Faults{Commit: func(_ spool.Incarnation, b *spool.Batch) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range b.Chunks {
			if c.Offset != ends[c.Message] {
				t.Errorf("chunk %d of %s is at %d, want %d", c.Seq, c.Message, c.Offset, ends[c.Message])
			}
			ends[c.Message] = c.Offset + int64(len(c.Data))
		}
		return true, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := spoolv1.NewSpoolServiceClient(p.conn).Submit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][32]byte{}
	var frames [][]*spoolv1.SubmitFrame
	frames = append(frames, []*spoolv1.SubmitFrame{{Kind: &spoolv1.SubmitFrame_Hello{
		Hello: &spoolv1.SubmitHello{ProtocolVersion: 1, Gateway: "gw"},
	}}})
	for i, size := range []int{0, 1, 5000, spool.InlineLimit, spool.InlineLimit + 1, 1 << 20, 3_000_001} {
		content := bytes.Repeat([]byte{byte('a' + i)}, size)
		id := uuid.Must(uuid.NewV7()).String()
		want[id] = sha256.Sum256(content)
		frames = append(frames, submission(id, content)...)
	}
	go func() {
		for _, f := range frames {
			_ = stream.Send(&spoolv1.SubmitRequest{Frames: f}) // where it fails, Recv tells
		}
	}()
	accepted := 0
	for accepted < len(want) {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range resp.GetFrames() {
			if f.GetRefused() != nil {
				t.Fatalf("refused: %v", f.GetRefused())
			}
			if f.GetAccepted() != nil {
				accepted++
			}
		}
	}
	for range want {
		select {
		case <-p.received.all:
		case <-ctx.Done():
			t.Fatal("not everything was delivered")
		}
	}
	p.received.mu.Lock()
	for id, hash := range want {
		if got := p.received.hashes[id]; !slices.Equal(got, [][32]byte{hash}) {
			t.Errorf("message %s was delivered %d times, and not as it came", id, len(got))
		}
	}
	p.received.mu.Unlock()
	p.server.Drain()
	for drained := false; !drained; {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		drained = resp.GetFrames()[len(resp.GetFrames())-1].GetDrain() != nil
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
	p.stop()
	if err := <-p.stopped; err != nil {
		t.Error(err)
	}
	for id := range want {
		if _, ended := p.store.Outcome(uuid.MustParse(id)); !ended {
			t.Errorf("message %s has not ended", id)
		}
	}
	// All streams have ended, or will at once: nobody holds up a graceful stop.
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		p.grpc.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		t.Error("the server does not stop")
	}
}

// submission is the frames of a message: one where its content is small, else a begin, chunks and an end.
func submission(id string, content []byte) [][]*spoolv1.SubmitFrame {
	begin := &spoolv1.SubmitBegin{Id: id, Envelope: &mailv1.Envelope{
		Sender: "a@a.test", Recipients: []*mailv1.Recipient{{Address: "b@b.test"}},
	}}
	if len(content) <= spool.InlineLimit {
		return [][]*spoolv1.SubmitFrame{{{Kind: &spoolv1.SubmitFrame_Message{
			Message: &spoolv1.SubmitMessage{Begin: begin, Content: content},
		}}}}
	}
	frames := [][]*spoolv1.SubmitFrame{{{Kind: &spoolv1.SubmitFrame_Begin{Begin: begin}}}}
	for chunk := range slices.Chunk(content, 100_000) {
		frames = append(frames, []*spoolv1.SubmitFrame{{Kind: &spoolv1.SubmitFrame_Chunk{
			Chunk: &spoolv1.SubmitChunk{Id: id, Data: chunk},
		}}})
	}
	return append(frames, []*spoolv1.SubmitFrame{{Kind: &spoolv1.SubmitFrame_End{
		End: &spoolv1.SubmitEnd{Id: id, Size: int64(len(content))},
	}}})
}
