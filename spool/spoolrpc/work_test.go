package spoolrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

func registerFrame(stage spoolv1.Stage) *spoolv1.WorkerFrame {
	return &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Register{
		Register: &spoolv1.Register{ProtocolVersion: 1, Stage: stage, Worker: "w1"},
	}}
}

func creditsFrame(n int32) *spoolv1.WorkerFrame {
	return &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Credits{Credits: &spoolv1.Credits{Count: n}}}
}

func resultFrame(res *spoolv1.Result) *spoolv1.WorkerFrame {
	res.Token = []byte("t")
	return &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Result{Result: res}}
}

// workerStream is a Work stream after its hello.
type workerStream struct {
	spoolv1.SpoolService_WorkClient
	queue []*spoolv1.SpoolFrame
}

func openWork(
	ctx context.Context, t *testing.T, client spoolv1.SpoolServiceClient, e *fakeEngine, stage spoolv1.Stage,
) (*workerStream, *fakeWorker) {
	t.Helper()
	stream, err := client.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ws := &workerStream{SpoolService_WorkClient: stream}
	ws.send(t, registerFrame(stage))
	if got := ws.next(t).GetHello().GetSpool(); got != "spool-1" {
		t.Fatalf("hello of %q", got)
	}
	return ws, within(t, "worker", e.workers)
}

func (ws *workerStream) send(t *testing.T, frames ...*spoolv1.WorkerFrame) {
	t.Helper()
	if err := ws.Send(&spoolv1.WorkRequest{Frames: frames}); err != nil {
		t.Fatal(err)
	}
}

func (ws *workerStream) next(t *testing.T) *spoolv1.SpoolFrame {
	t.Helper()
	for len(ws.queue) == 0 {
		resp, err := ws.Recv()
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		ws.queue = resp.GetFrames()
	}
	frame := ws.queue[0]
	ws.queue = ws.queue[1:]
	return frame
}

func testJob(content []byte) *spool.Job {
	return &spool.Job{
		Token: []byte("t"), Stage: spool.StageDeliver, ID: uuid.Must(uuid.NewV7()), Envelope: testEnvelope(),
		Lease: time.Minute, Size: int64(len(content)), Content: content,
		Destination: "b.test", Recipients: []int32{0}, Attempt: 1,
	}
}

func TestWorkBadStart(t *testing.T) {
	register := func(version int32, stage spoolv1.Stage, name string) []*spoolv1.WorkerFrame {
		return []*spoolv1.WorkerFrame{{Kind: &spoolv1.WorkerFrame_Register{
			Register: &spoolv1.Register{ProtocolVersion: version, Stage: stage, Worker: name},
		}}}
	}
	good := registerFrame(spoolv1.Stage_STAGE_FILTER)
	for name, frames := range map[string][]*spoolv1.WorkerFrame{
		"nothing":          nil,
		"credits first":    {creditsFrame(1), good},
		"empty register":   {{Kind: &spoolv1.WorkerFrame_Register{}}},
		"version 0":        register(0, spoolv1.Stage_STAGE_FILTER, "w"),
		"no stage":         register(1, 0, "w"),
		"unknown stage":    register(1, 99, "w"),
		"no name":          register(1, spoolv1.Stage_STAGE_FILTER, ""),
		"long name":        register(1, spoolv1.Stage_STAGE_FILTER, strings.Repeat("x", maxName+1)),
		"registered twice": {good, good},
		"no credits":       {good, creditsFrame(0)},
		"negative credits": {good, creditsFrame(-1)},
		"too many credits": {good, creditsFrame(maxCredits), creditsFrame(1)},
		"huge credits":     {good, creditsFrame(1<<31 - 1)},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := dial(t, newFakeEngine(), Options{})
			stream, err := client.Work(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&spoolv1.WorkRequest{Frames: frames}); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v, want InvalidArgument", err)
			}
		})
	}
}

func TestWorkNotTaken(t *testing.T) {
	for name, joinErr := range map[string]error{
		"reply": smtpreply.New(451, "4.3.2", "Stopping"), "plain": errors.New("secret"),
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine()
			e.join = func(*fakeWorker) error { return joinErr }
			client, _ := dial(t, e, Options{})
			stream, err := client.Work(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&spoolv1.WorkRequest{
				Frames: []*spoolv1.WorkerFrame{registerFrame(spoolv1.Stage_STAGE_PARSER)},
			}); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want Unavailable", err)
			}
		})
	}
}

func TestWorkConversation(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
	if w.stage != spool.StageDeliver || w.name != "w1" {
		t.Errorf("joined as %v %q", w.stage, w.name)
	}
	ws.send(t, creditsFrame(2), &spoolv1.WorkerFrame{},
		&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Progress{Progress: &spoolv1.Progress{Token: []byte("a")}}},
		&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_PermitRequest{PermitRequest: &spoolv1.PermitRequest{Token: []byte("b")}}},
		resultFrame(&spoolv1.Result{}),
		&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Drain{}})
	for _, want := range []string{"grant", "progress a", "permit b", "result t", "drain"} {
		if got := within(t, want, w.calls); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w.sink.SendJob(testJob([]byte("x")))
	w.sink.AnswerPermit([]byte("b"), true)
	w.sink.AckResult([]byte("t"), spool.AckStale)
	w.sink.CancelJob([]byte("c"), "why")
	w.sink.SendHello(spool.Hello{Name: "again"})
	w.sink.SendDrain()
	if got := ws.next(t).GetJob(); string(got.GetContent()) != "x" || got.GetDeliver().GetDestination() != "b.test" {
		t.Errorf("job %v", got)
	}
	if got := ws.next(t).GetPermitAnswer(); string(got.GetToken()) != "b" || !got.GetGranted() {
		t.Errorf("permit %v", got)
	}
	if got := ws.next(t).GetResultAck(); got.GetStatus() != spoolv1.ResultAckStatus_RESULT_ACK_STATUS_STALE {
		t.Errorf("ack %v", got)
	}
	if got := ws.next(t).GetCancel(); string(got.GetToken()) != "c" || got.GetReason() != "why" {
		t.Errorf("cancel %v", got)
	}
	if got := ws.next(t).GetHello(); got.GetSpool() != "again" {
		t.Errorf("hello %v", got)
	}
	if ws.next(t).GetDrain() == nil {
		t.Error("no drain")
	}
	// It holds nothing, so the spool ends the stream.
	if _, err := ws.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
	within(t, "leave", w.left)
}

// A worker that has said its last still gets what waits for it.
func TestWorkCloseSend(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
	w.sink.AckResult([]byte("last"), spool.AckCounted)
	if err := ws.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if got := ws.next(t).GetResultAck(); string(got.GetToken()) != "last" {
		t.Errorf("last ack %v", got)
	}
	if _, err := ws.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
	within(t, "leave", w.left)
}

// A spool that drains ends the stream when what the worker holds has been answered, and not before.
func TestWorkDrain(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
	tokens := []string{"acked", "cancelled", "not permitted", "again"}
	for _, token := range tokens {
		job := testJob(nil)
		job.Token = []byte(token)
		w.sink.SendJob(job)
	}
	w.sink.SendDrain()
	for _, release := range []func(){
		func() { w.sink.AckResult([]byte("acked"), spool.AckCounted) },
		func() { w.sink.CancelJob([]byte("cancelled"), "") },
		func() { w.sink.AnswerPermit([]byte("not permitted"), false) },
		func() { w.sink.AckResult([]byte("again"), spool.AckAgain) },
	} {
		w.sink.AnswerPermit([]byte("again"), true) // releases nothing
		ws.send(t, creditsFrame(1))
		if got := within(t, "grant: the stream has not ended", w.calls); got != "grant" {
			t.Errorf("got %q", got)
		}
		release()
	}
	for frames := len(tokens) + 1 + 8; frames > 0; frames-- {
		ws.next(t)
	}
	if _, err := ws.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
	within(t, "leave", w.left)
}

// Jobs that are ready together go out together, in messages below 256 KiB; a larger one goes alone.
func TestWorkPacksJobs(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
	const small, large = 2000, 20
	// These fill the stream's window (1 MiB), so that the others are ready together however fast the spool sends.
	for range large {
		w.sink.SendJob(testJob(make([]byte, spool.InlineLimit)))
	}
	for range small {
		w.sink.SendJob(testJob(make([]byte, 100)))
	}
	huge := testJob(nil)
	huge.Stage, huge.Parsed = spool.StageFilter, &mailv1.ParsedMessage{Text: strings.Repeat("x", 500<<10)}
	w.sink.SendJob(huge)
	jobs, responses := 0, 0
	for jobs < small+large+1 {
		resp, err := ws.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size >= maxResponse && len(resp.GetFrames()) > 1 {
			t.Errorf("%d frames in %d octets", len(resp.GetFrames()), size)
		}
		jobs += len(resp.GetFrames())
		responses++
	}
	if responses > 200 {
		t.Errorf("%d responses for %d jobs", responses, jobs)
	}
}

// A worker that does not read is dropped, such that others get its jobs (promise P6).
func TestWorkSlowWorker(t *testing.T) {
	for name, flood := range map[string]func(sink spool.WorkerSink){
		"jobs": func(sink spool.WorkerSink) {
			for range 100 {
				sink.SendJob(testJob(make([]byte, spool.InlineLimit)))
			}
		},
		"answers": func(sink spool.WorkerSink) {
			token := make([]byte, 128)
			for range maxOutbox + 10000 {
				sink.AckResult(token, spool.AckStale)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine()
			opts := Options{SendTimeout: time.Minute}
			if name == "jobs" {
				opts.SendTimeout = time.Second // enough for the hello on a busy machine
			}
			client, _ := dial(t, e, opts)
			ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
			flood(w.sink)
			within(t, "leave", w.left)
			var err error
			for err == nil {
				_, err = ws.Recv()
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("got %v, want ResourceExhausted", err)
			}
		})
	}
}

func TestWorkBrokenStream(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	_, w := openWork(ctx, t, client, e, spoolv1.Stage_STAGE_PARSER)
	cancel()
	within(t, "leave", w.left)
	w.sink.SendDrain() // has nobody to go to
}

// Whatever a worker sends, exactly one field of the result is set.
func TestResults(t *testing.T) {
	parsed := &mailv1.ParsedMessage{Subject: "x"}
	verdict := &mailv1.Verdict{}
	attempt := &mailv1.Attempt{Route: "smtp"}
	says := spool.WorkResult{Failure: "the result says nothing"}
	good := &spoolv1.Notification{Envelope: testEnvelope(), Content: []byte("n")}
	for _, tt := range []struct {
		name string
		res  *spoolv1.Result
		want spool.WorkResult
	}{
		{"parse", &spoolv1.Result{Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{Parsed: parsed}}}, spool.WorkResult{Parsed: parsed}},
		{"filter", &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}, spool.WorkResult{Verdict: verdict}},
		{
			"deliver", &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{
				Attempt: attempt, Notifications: []*spoolv1.Notification{{}, good},
			}}},
			spool.WorkResult{Attempt: attempt, Notifications: []spool.Notification{{Envelope: testEnvelope(), Content: []byte("n")}}},
		},
		{"failure", &spoolv1.Result{Kind: &spoolv1.Result_Failure{Failure: &spoolv1.JobFailure{Reason: "no"}}}, spool.WorkResult{Failure: "no"}},
		{"failure without reason", &spoolv1.Result{Kind: &spoolv1.Result_Failure{}}, spool.WorkResult{Failure: "the worker gave no reason"}},
		{"nothing", &spoolv1.Result{}, says},
		{"empty parse", &spoolv1.Result{Kind: &spoolv1.Result_Parse{}}, says},
		{"empty filter", &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{}}}, says},
		{"empty deliver", &spoolv1.Result{Kind: &spoolv1.Result_Deliver{}}, says},
		{
			"notifications alone", &spoolv1.Result{Kind: &spoolv1.Result_Deliver{Deliver: &spoolv1.DeliverResult{
				Notifications: []*spoolv1.Notification{good},
			}}}, says,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFakeEngine()
			client, _ := dial(t, e, Options{})
			ws, w := openWork(testContext(t), t, client, e, spoolv1.Stage_STAGE_DELIVER)
			ws.send(t, resultFrame(tt.res))
			within(t, "result", w.calls)
			if diff := cmp.Diff(tt.want, w.results[0], protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestJobFrames(t *testing.T) {
	parsed := &mailv1.ParsedMessage{Subject: "x"}
	bounce := []*mailv1.RecipientResult{{Recipient: 0}}
	for _, tt := range []struct {
		name string
		job  spool.Job
		want *spoolv1.Job
	}{
		{"parse", spool.Job{Stage: spool.StageParser}, &spoolv1.Job{Work: &spoolv1.Job_Parse{Parse: &spoolv1.ParseWork{}}}},
		{
			"filter",
			spool.Job{Stage: spool.StageFilter, Parsed: parsed},
			&spoolv1.Job{Work: &spoolv1.Job_Filter{Filter: &spoolv1.FilterWork{Parsed: parsed}}},
		},
		{"filter unparsed", spool.Job{Stage: spool.StageFilter}, &spoolv1.Job{Work: &spoolv1.Job_Filter{Filter: &spoolv1.FilterWork{}}}},
		{
			"deliver",
			spool.Job{Stage: spool.StageDeliver, Destination: "d", Recipients: []int32{1, 2}, Attempt: 3},
			&spoolv1.Job{Work: &spoolv1.Job_Deliver{Deliver: &spoolv1.DeliverWork{Destination: "d", Recipients: []int32{1, 2}, Attempt: 3}}},
		},
		{
			"bounce",
			spool.Job{Stage: spool.StageDeliver, Bounce: bounce},
			&spoolv1.Job{Work: &spoolv1.Job_Bounce{Bounce: &spoolv1.BounceWork{Results: bounce}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.job.ID = uuid.Must(uuid.NewV7())
			tt.job.Token, tt.job.Size, tt.job.Trace = []byte("t"), 7, &mailv1.TraceContext{Traceparent: "p"}
			got := jobFrame(&tt.job).GetJob()
			if got.GetMessageId() != tt.job.ID.String() || string(got.GetToken()) != "t" || got.GetContentSize() != 7 ||
				got.GetTrace().GetTraceparent() != "p" {
				t.Errorf("got %v", got)
			}
			work := &spoolv1.Job{Work: got.GetWork()}
			if diff := cmp.Diff(tt.want, work, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
