package spoolrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

// Answers that are ready together go out together, in their order, in messages below 256 KiB.
func TestSubmitPacksAnswers(t *testing.T) {
	// What comes before fills the stream's window (1 MiB), so that the rest is ready together however fast the spool sends.
	const before, n = 2000, 3000
	var answers []func()
	all := make(chan struct{})
	e := newFakeEngine()
	e.submit = func(sub spool.Submission, _ *fakeUpload, done func(spool.Receipt, error)) {
		answers = append(answers, func() { done(spool.Receipt{}, smtpreply.New(452, "4.3.1", strings.Repeat("x", 1000))) })
		if len(answers) == n {
			close(all)
		}
	}
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	var want []string
	for range n / 100 {
		var frames []*spoolv1.SubmitFrame
		for range 100 {
			id := newID()
			want = append(want, id)
			frames = append(frames, messageFrame(id, []byte("x\r\n")))
		}
		g.send(t, frames...)
	}
	within(t, "submission of everything", all)
	slices.Reverse(answers) // answered in the order in which they became durable, not in that of submission
	slices.Reverse(want)
	for _, answer := range answers {
		answer()
	}
	var got []string
	responses := 0
	for len(got) < n {
		resp, err := g.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size >= maxResponse {
			t.Errorf("a response of %d octets", size)
		}
		for _, f := range resp.GetFrames() {
			got = append(got, f.GetRefused().GetId())
		}
		if len(got) > before {
			responses++
		}
	}
	if !slices.Equal(got, want) {
		t.Error("answers are not in order")
	}
	if responses > (n-before)/10 {
		t.Errorf("%d responses for %d answers that were ready together", responses, n-before)
	}
}

// A gateway that sends and does not read fills both windows. The spool then stops to read, keeps what it holds bounded,
// and goes on as soon as the gateway reads.
func TestSubmitGatewayThatDoesNotRead(t *testing.T) {
	const n = 10000
	e := newFakeEngine()
	e.submit = func(_ spool.Submission, _ *fakeUpload, done func(spool.Receipt, error)) {
		done(spool.Receipt{}, smtpreply.New(452, "4.3.1", strings.Repeat("x", 1500)))
	}
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	var sent atomic.Int64
	sendErr := make(chan error, 1)
	go func() {
		content := make([]byte, 1024)
		for range n {
			err := g.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{messageFrame(newID(), content)}})
			if err != nil {
				sendErr <- err
				return
			}
			sent.Add(1)
		}
		sendErr <- g.CloseSend()
	}()
	// It stands still when nothing more is sent for a while.
	for last := int64(-1); sent.Load() != last || last < maxUnanswered; time.Sleep(100 * time.Millisecond) {
		last = sent.Load()
	}
	if got := e.count(); got > maxUnanswered+2000 {
		t.Errorf("%d messages were taken whose answers nobody read", got)
	}
	seen := map[string]bool{}
	for {
		resp, err := g.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range resp.GetFrames() {
			seen[f.GetRefused().GetId()] = true
		}
	}
	if err := <-sendErr; err != nil || len(seen) != n {
		t.Errorf("%d of %d answered, sending: %v", len(seen), n, err)
	}
}

// What a frame gets wrong only refuses its message, with 451 (case A1, promise P5): the stream lives on.
func TestSubmitMistakes(t *testing.T) {
	id := newID()
	long := make([]byte, spool.InlineLimit+1)
	noRecipients := messageFrame(id, nil)
	noRecipients.GetMessage().Begin.Envelope.Recipients = nil
	emptyRecipient := messageFrame(id, nil)
	emptyRecipient.GetMessage().Begin.Envelope.Recipients[0].Address = ""
	noEnvelope := beginFrame(id)
	noEnvelope.GetBegin().Envelope = nil
	late := messageFrame(id, nil)
	late.GetMessage().Begin.Deadline = durationpb.New(-time.Second)
	message := func(m *spoolv1.SubmitMessage) *spoolv1.SubmitFrame {
		return &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{Message: m}}
	}
	uuid4 := uuid.NewString()
	one := []string{id + " 4.6.0"}
	for _, tt := range []struct {
		name   string
		frames []*spoolv1.SubmitFrame
		want   []string // id and enhanced code of each refusal
	}{
		{"unknown kind, second hello", []*spoolv1.SubmitFrame{{}, helloFrame()}, nil},
		{"empty frame kinds", []*spoolv1.SubmitFrame{
			message(nil),
			{Kind: &spoolv1.SubmitFrame_Begin{}},
			{Kind: &spoolv1.SubmitFrame_Chunk{}},
			{Kind: &spoolv1.SubmitFrame_End{}},
			{Kind: &spoolv1.SubmitFrame_Abort{}},
		}, slices.Repeat([]string{" 4.6.0"}, 5)},
		{"no begin", []*spoolv1.SubmitFrame{message(&spoolv1.SubmitMessage{Content: []byte("x")})}, []string{" 4.6.0"}},
		{"id is no UUID", []*spoolv1.SubmitFrame{messageFrame("nonsense", nil)}, []string{"nonsense 4.6.0"}},
		{"id is a UUIDv4", []*spoolv1.SubmitFrame{messageFrame(uuid4, nil)}, []string{uuid4 + " 4.6.0"}},
		{
			"id is not canonical",
			[]*spoolv1.SubmitFrame{messageFrame("{"+id+"}", nil)},
			[]string{"{" + id + "} 4.6.0"},
		},
		{
			"id is long",
			[]*spoolv1.SubmitFrame{abortFrame(strings.Repeat("ä", 100))},
			[]string{strings.Repeat("ä", 32) + " 4.6.0"},
		},
		{"no recipients", []*spoolv1.SubmitFrame{noRecipients}, one},
		{"empty recipient", []*spoolv1.SubmitFrame{emptyRecipient}, one},
		{
			"no envelope, content passed over",
			[]*spoolv1.SubmitFrame{noEnvelope, chunkFrame(id, []byte("x")), endFrame(id, 1)},
			one,
		},
		{"too large for one frame", []*spoolv1.SubmitFrame{messageFrame(id, long)}, one},
		{"no time left", []*spoolv1.SubmitFrame{late}, []string{id + " 4.4.2"}},
		{
			"chunks and end without begin",
			[]*spoolv1.SubmitFrame{chunkFrame(id, []byte("x")), chunkFrame(id, []byte("y")), endFrame(id, 2)},
			one,
		},
		{"end without begin", []*spoolv1.SubmitFrame{endFrame(id, 0)}, one},
		{
			"begin twice",
			[]*spoolv1.SubmitFrame{beginFrame(id), beginFrame(id), chunkFrame(id, []byte("x")), endFrame(id, 1)},
			one,
		},
		{"message for an upload", []*spoolv1.SubmitFrame{beginFrame(id), messageFrame(id, nil), endFrame(id, 0)}, one},
		{"wrong size", []*spoolv1.SubmitFrame{beginFrame(id), chunkFrame(id, []byte("x")), endFrame(id, 2)}, one},
		{"large chunk", []*spoolv1.SubmitFrame{beginFrame(id), chunkFrame(id, make([]byte, maxChunk+1)), endFrame(id, 1)}, one},
		{"abort of an upload", []*spoolv1.SubmitFrame{beginFrame(id), chunkFrame(id, long), abortFrame(id)}, []string{id + " 4.4.2"}},
		{"negative size", []*spoolv1.SubmitFrame{beginFrame(id), endFrame(id, -1)}, one},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFakeEngine()
			client, _ := dial(t, e, Options{})
			g := openSubmit(testContext(t), t, client)
			good := newID()
			g.send(t, append(tt.frames, messageFrame(good, []byte("fine")))...)
			var got []string
			for {
				frame := g.next(t)
				if frame.GetAccepted().GetId() == good {
					break
				}
				refused := frame.GetRefused()
				if refused.GetReply().GetCode() != 451 {
					t.Errorf("got %v, want a refusal with 451", frame)
				}
				got = append(got, refused.GetId()+" "+refused.GetReply().GetEnhancedCode())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("refused %q, want %q", got, tt.want)
			}
			if e.count() != 1 || len(e.aborted) != 0 {
				t.Errorf("%d messages submitted, want only the good one; aborted %v", e.count(), e.aborted)
			}
			for _, u := range e.uploads {
				within(t, "abort of the upload", u.aborts)
			}
		})
	}
}

func TestSubmitBadStart(t *testing.T) {
	hello := func(version int32, name string) []*spoolv1.SubmitFrame {
		return []*spoolv1.SubmitFrame{{Kind: &spoolv1.SubmitFrame_Hello{
			Hello: &spoolv1.SubmitHello{ProtocolVersion: version, Gateway: name},
		}}}
	}
	for name, frames := range map[string][]*spoolv1.SubmitFrame{
		"nothing":          nil,
		"a message first":  {messageFrame(newID(), nil), helloFrame()},
		"empty hello kind": {{Kind: &spoolv1.SubmitFrame_Hello{}}},
		"version 0":        hello(0, "gw"),
		"long name":        hello(1, strings.Repeat("x", maxName+1)),
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := dial(t, newFakeEngine(), Options{})
			stream, err := client.Submit(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&spoolv1.SubmitRequest{Frames: frames}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v, want InvalidArgument", err)
			}
		})
	}
	t.Run("no incarnation", func(t *testing.T) {
		e := newFakeEngine()
		e.noHello = true
		client, _ := dial(t, e, Options{})
		stream, err := client.Submit(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&spoolv1.SubmitRequest{Frames: hello(1, "gw")}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}
	})
}

// Case A1: an inner error is told as 451 and without its words; a decision as it is.
func TestSubmitAnswers(t *testing.T) {
	dup := uuid.Must(uuid.NewV7())
	for _, tt := range []struct {
		name    string
		receipt spool.Receipt
		err     error
		want    string
	}{
		{"accepted", spool.Receipt{}, nil, "accepted "},
		{"duplicate", spool.Receipt{SuspectedDuplicateOf: dup}, nil, "accepted " + dup.String()},
		{"decision", spool.Receipt{}, smtpreply.New(550, "5.7.1", "No"), "refused 550 5.7.1 No"},
		{
			"inner error",
			spool.Receipt{},
			fmt.Errorf("storing: %w", errors.New("secret")),
			"refused 451 4.3.0 Temporary system problem, try again later",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFakeEngine()
			e.submit = func(_ spool.Submission, _ *fakeUpload, done func(spool.Receipt, error)) { go done(tt.receipt, tt.err) }
			client, _ := dial(t, e, Options{})
			g := openSubmit(testContext(t), t, client)
			id := newID()
			g.send(t, messageFrame(id, nil))
			var got string
			switch f := g.next(t); {
			case f.GetAccepted().GetId() == id:
				got = "accepted " + f.GetAccepted().GetSuspectedDuplicateOf()
			case f.GetRefused().GetId() == id:
				r := f.GetRefused().GetReply()
				got = fmt.Sprintf("refused %d %s %s", r.GetCode(), r.GetEnhancedCode(), r.GetText())
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSubmissionIsComplete(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	frame := messageFrame(newID(), nil)
	begin := frame.GetMessage().GetBegin()
	begin.Trace = &mailv1.TraceContext{Traceparent: "00-x"}
	begin.Edits = []*mailv1.Edit{{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{Name: "Received"}}}}
	before := time.Now()
	g.send(t, frame)
	g.next(t)
	sub := e.submitted[0]
	if sub.ID.String() != begin.GetId() || !proto.Equal(sub.Envelope, begin.GetEnvelope()) ||
		!proto.Equal(sub.Trace, begin.GetTrace()) || !proto.Equal(sub.Edits[0], begin.GetEdits()[0]) {
		t.Errorf("got %+v", sub)
	}
	// Case C9: empty content is content.
	if sub.Content == nil || len(sub.Content) != 0 {
		t.Errorf("content %#v, want empty and not nil", sub.Content)
	}
	if wait := sub.Deadline.Sub(before); wait < defaultDeadline || wait > defaultDeadline+10*time.Second {
		t.Errorf("deadline in %v, want 60 s", wait)
	}
}

// A broken stream ends what was not whole. What was whole goes on, since the gateway asks again under the same id.
func TestSubmitBrokenStream(t *testing.T) {
	e := newFakeEngine()
	answer := make(chan func(spool.Receipt, error), 1)
	e.submit = func(_ spool.Submission, _ *fakeUpload, done func(spool.Receipt, error)) { answer <- done }
	client, _ := dial(t, e, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	g := openSubmit(ctx, t, client)
	id := newID()
	g.send(t, beginFrame(id), chunkFrame(id, make([]byte, 200<<10)), messageFrame(newID(), nil))
	done := within(t, "submission", answer)
	cancel()
	within(t, "abort of the upload", e.uploads[0].aborts)
	done(spool.Receipt{}, nil) // has nobody to go to
	if len(e.aborted) != 0 {
		t.Errorf("aborted %v", e.aborted)
	}
}

// A gateway that has said its last still gets every answer.
func TestSubmitCloseSend(t *testing.T) {
	e := newFakeEngine()
	answer := make(chan func(spool.Receipt, error), 1)
	e.submit = func(_ spool.Submission, _ *fakeUpload, done func(spool.Receipt, error)) { answer <- done }
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	id := newID()
	g.send(t, messageFrame(id, nil))
	if err := g.CloseSend(); err != nil {
		t.Fatal(err)
	}
	within(t, "submission", answer)(spool.Receipt{}, nil)
	if g.next(t).GetAccepted().GetId() != id {
		t.Error("not accepted")
	}
	if _, err := g.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
}

// An abort reaches the spool for a message that it has, even one from an earlier stream.
func TestSubmitAbort(t *testing.T) {
	e := newFakeEngine()
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	id, other := newID(), newID()
	g.send(t, abortFrame(id), messageFrame(other, nil))
	if g.next(t).GetAccepted().GetId() != other {
		t.Error("not accepted")
	}
	if len(e.aborted) != 1 || e.aborted[0].String() != id {
		t.Errorf("aborted %v, want %s", e.aborted, id)
	}
}

func TestSubmitDrainAndNews(t *testing.T) {
	e := newFakeEngine()
	client, srv := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	e.mu.Lock()
	e.hello.Peers = []string{"c:1"}
	e.mu.Unlock()
	if got := g.next(t).GetHello(); !slices.Equal(got.GetPeers(), []string{"c:1"}) {
		t.Errorf("got %v, want the new peers", got)
	}
	srv.Drain()
	srv.Drain()
	if g.next(t).GetDrain() == nil {
		t.Error("no drain")
	}
	g.send(t, messageFrame(newID(), nil))
	if g.next(t).GetAccepted() == nil {
		t.Error("what the gateway had sent before it knew is not answered")
	}
	// Greeted and then told to go, a gateway would send what waits to a spool that refuses it.
	late, err := client.Submit(testContext(t))
	if err == nil {
		err = late.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{helloFrame()}})
	}
	if err == nil {
		_, err = late.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream that was opened later: %v, want Unavailable", err)
	}
}
