package gatewayrpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

func small(content string) *gateway.Submission {
	return &gateway.Submission{
		ID:       uuid.Must(uuid.NewV7()),
		Envelope: &mailv1.Envelope{Sender: "a@x.test", Recipients: []*mailv1.Recipient{{Address: "b@x.test"}}},
		Content:  []byte(content),
		Deadline: patience,
	}
}

func large(r io.Reader) *gateway.Submission {
	sub := small("")
	sub.Content, sub.Stream = nil, r
	return sub
}

func TestSmallMessage(t *testing.T) {
	var got *spoolv1.SubmitMessage
	spool := &fakeSpool{now: time.Now(), on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		got = f.GetMessage()
		return acceptAll(s, f)
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	sub := small("x\r\n")
	traced := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	if _, err := c.Submit(trace.ContextWithSpanContext(t.Context(), traced), sub); err != nil {
		t.Fatal(err)
	}
	b := got.GetBegin()
	if b.GetId() != sub.ID.String() || string(got.GetContent()) != "x\r\n" || b.GetEnvelope().GetSender() != "a@x.test" {
		t.Errorf("spool got %v", got)
	}
	if d := b.GetDeadline().AsDuration(); d <= 0 || d > patience {
		t.Errorf("deadline %v, want what is left of %v", d, patience)
	}
	if want := "00-01000000000000000000000000000000-0200000000000000-01"; b.GetTrace().GetTraceparent() != want {
		t.Errorf("traceparent %q, want %q", b.GetTrace().GetTraceparent(), want)
	}
}

// The spool's refusals reach the client, those that are none do not.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		code     int32
		enhanced string
		want     int32
	}{"permanent": {550, "5.7.1", 550}, "temporary": {452, "4.3.1", 452}, "case A1 not a refusal": {0, "", 451}} {
		t.Run(name, func(t *testing.T) {
			spool := &fakeSpool{on: func(_ *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
				return []*spoolv1.SubmitReplyFrame{refused(f.GetMessage().GetBegin().GetId(), c.code, c.enhanced)}, nil
			}}
			_, err := client(t, gatewayrpc.Options{}, serve(t, spool)).Submit(t.Context(), small("x\r\n"))
			if got := smtpreply.From(err).Reply().GetCode(); got != c.want {
				t.Errorf("reply code %d, want %d", got, c.want)
			}
		})
	}
}

// Messages that are ready together go out together, and every answer finds its message.
func TestManyAtOnce(t *testing.T) {
	const n = 200
	release := make(chan struct{})
	var once sync.Once
	spool := &fakeSpool{}
	spool.on = func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		once.Do(func() { <-release }) // holds up the first, so that the others queue
		if strings.HasPrefix(string(f.GetMessage().GetContent()), "bad") {
			return []*spoolv1.SubmitReplyFrame{refused(f.GetMessage().GetBegin().GetId(), 550, "5.7.1")}, nil
		}
		return acceptAll(s, f)
	}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			content := "good\r\n"
			if i%3 == 0 {
				content = "bad\r\n"
			}
			content += strings.Repeat("x", 2000)
			_, err := c.Submit(t.Context(), small(content))
			if (err != nil) != (i%3 == 0) {
				t.Errorf("message %d: %v", i, err)
			}
		})
	}
	close(release)
	wg.Wait()
	spool.mu.Lock()
	defer spool.mu.Unlock()
	for _, batch := range spool.batches {
		size := 0
		for _, f := range batch {
			size += len(f.GetMessage().GetContent())
		}
		if len(batch) > 1 && size > 256<<10 {
			t.Errorf("a batch of %d frames has %d octets", len(batch), size)
		}
	}
	if spool.streams != 1 {
		t.Errorf("%d streams, want one", spool.streams)
	}
}

// What a broken stream left is submitted again under the same id, with the time that is left.
func TestBrokenStream(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	spool := &fakeSpool{on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		mu.Lock()
		seen[f.GetMessage().GetBegin().GetId()]++
		mu.Unlock()
		if s.number <= 2 {
			return nil, status.Error(codes.Unavailable, "going down")
		}
		return acceptAll(s, f)
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	sub := small("x\r\n")
	if _, err := c.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen[sub.ID.String()] != 3 {
		t.Errorf("spool saw the message %d times, want 3", seen[sub.ID.String()])
	}
}

// A spool that drains answers what it has; what is new goes to another.
func TestDrain(t *testing.T) {
	leaving, staying := start(t, "leaving", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if string(f.GetMessage().GetContent()) == "held\r\n" {
			if err := s.send(&spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Drain{Drain: &spoolv1.Drain{}}}); err != nil {
				return nil, err
			}
		}
		return acceptAll(s, f)
	}), start(t, "staying", acceptAll)
	rest := make(chan struct{})
	leaving.change(func(f *fakeSpool) { f.rest = rest })
	c := client(t, gatewayrpc.Options{}, leaving.connect(t), staying.connect(t))
	untilBoth(t, c, leaving, staying)
	leaving.change(func(f *fakeSpool) { f.only = f.streams })
	leaving.holds.Store(true)
	wait := untilHeld(t, c, leaving)
	before := len(leaving.got())
	more := func() {
		t.Helper()
		for range 20 {
			if err := submit(t, c, small("x\r\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	more()
	leaving.letGo(t)
	wait()
	more() // though it owes nothing any more
	close(rest)
	more()
	if got := len(leaving.got()); got != before {
		t.Errorf("the spool that leaves got %d messages before it said so, and %d in all", before, got)
	}
	if id := leaving.got()[0].GetBegin().GetId(); staying.times(id) > 0 {
		t.Error("a message that it would answer was sent to the other one")
	}
}

// The end of the client's patience takes a message back.
func TestAbort(t *testing.T) {
	read, aborted := make(chan string, 1), make(chan string, 1)
	spool := &fakeSpool{on: func(_ *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		switch {
		case f.GetMessage() != nil:
			read <- f.GetMessage().GetBegin().GetId()
		case f.GetEnd() != nil:
			read <- f.GetEnd().GetId()
		case f.GetAbort() != nil:
			aborted <- f.GetAbort().GetId()
			return []*spoolv1.SubmitReplyFrame{refused(f.GetAbort().GetId(), 451, "4.4.2")}, nil
		}
		return nil, nil
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	for name, sub := range map[string]*gateway.Submission{"small": small("x\r\n"), "large": large(strings.NewReader("x\r\n"))} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := c.Submit(ctx, sub)
				failed <- err
			}()
			<-read
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("Submit: %v", err)
			}
			if id := <-aborted; id != sub.ID.String() {
				t.Errorf("aborted %s, want %s", id, sub.ID)
			}
		})
	}
}

// A spool that drains hears of what is taken back, and its stream ends once it owes nothing more.
func TestAbortOnStreamThatDrains(t *testing.T) {
	read, aborted, closed := make(chan string, 1), make(chan string, 1), make(chan struct{}, 10)
	spool := &fakeSpool{rest: closedChannel(), ended: closed, on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		switch {
		case f.GetMessage() != nil:
			if err := s.send(&spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Drain{Drain: &spoolv1.Drain{}}}); err != nil {
				return nil, err
			}
			read <- f.GetMessage().GetBegin().GetId()
		case f.GetAbort() != nil:
			aborted <- f.GetAbort().GetId()
			return []*spoolv1.SubmitReplyFrame{refused(f.GetAbort().GetId(), 451, "4.4.2")}, nil
		}
		return nil, nil
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Submit(ctx, small("x\r\n"))
		failed <- err
	}()
	id := <-read
	spool.waitStreams(t, 2) // the first one takes no more
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Submit: %v", err)
	}
	for _, c := range []struct {
		what string
		came func() bool
	}{
		{"an abort", func() bool { return id == <-aborted }},
		{"the end of the stream", func() bool { <-closed; return true }},
	} {
		came := make(chan bool, 1)
		go func() { came <- c.came() }()
		select {
		case right := <-came:
			if !right {
				t.Errorf("%s of another message", c.what)
			}
		case <-time.After(patience):
			t.Fatalf("%s does not come", c.what)
		}
	}
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// waitStreams waits until so many streams were opened.
func (f *fakeSpool) waitStreams(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		there := f.streams >= n
		f.mu.Unlock()
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %d streams", n)
		}
	}
}

// Case H7: larger than any frame, and octet for octet the same.
func TestLargeMessage(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789\r\n"), 1<<20)
	var got bytes.Buffer
	spool := &fakeSpool{on: func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		got.Write(f.GetChunk().GetData())
		if f.GetEnd() != nil && f.GetEnd().GetSize() != int64(len(content)) {
			t.Errorf("size %d, want %d", f.GetEnd().GetSize(), len(content))
		}
		return acceptAll(s, f)
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	if _, err := c.Submit(t.Context(), large(bytes.NewReader(content))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), content) {
		t.Error("content has changed")
	}
	spool.mu.Lock()
	defer spool.mu.Unlock()
	for _, batch := range spool.batches {
		for _, f := range batch {
			if len(f.GetChunk().GetData()) > 256<<10 {
				t.Errorf("chunk of %d octets", len(f.GetChunk().GetData()))
			}
		}
	}
}

// failing gives some content and then an error.
type failing struct {
	left int
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, f.err
	}
	n := min(len(p), f.left)
	f.left -= n
	return n, nil
}

// Content that fails is never ended, whatever the error; io.ErrUnexpectedEOF is that of a client that is gone.
func TestLargeContentFails(t *testing.T) {
	var toldEnd atomic.Bool
	spool := &fakeSpool{ended: make(chan struct{}, 10), on: func(_ *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if f.GetEnd() != nil {
			toldEnd.Store(true)
		}
		return nil, nil
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	for _, want := range []error{io.ErrUnexpectedEOF, smtpreply.New(554, "5.6.0", "bare LF")} {
		if _, err := c.Submit(t.Context(), large(&failing{left: 300_000, err: want})); !errors.Is(err, want) {
			t.Errorf("Submit: %v, want %v", err, want)
		}
		<-spool.ended // of the message's own stream; the shared one stays
	}
	if toldEnd.Load() {
		t.Error("the spool was told of an end")
	}
}

// A refusal that comes early ends the upload.
func TestLargeRefusedEarly(t *testing.T) {
	spool := &fakeSpool{on: func(_ *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if f.GetBegin() != nil {
			return []*spoolv1.SubmitReplyFrame{refused(f.GetBegin().GetId(), 452, "4.3.1")}, nil
		}
		return nil, nil
	}}
	c := client(t, gatewayrpc.Options{}, serve(t, spool))
	endless := &failing{left: 1 << 40, err: io.EOF}
	_, err := c.Submit(t.Context(), large(endless))
	if code := smtpreply.From(err).Reply().GetCode(); code != 452 {
		t.Errorf("reply code %d, want 452", code)
	}
}

// Case A1: without a spool clients are told 451 after a short wait, then at once; and it comes back by itself.
func TestNoSpool(t *testing.T) {
	nowhere, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nowhere.Close() })
	c := client(t, gatewayrpc.Options{Unreachable: 50 * time.Millisecond}, nowhere)
	for name, sub := range map[string]*gateway.Submission{
		"first": small("x\r\n"), "next": small("x\r\n"), "large": large(strings.NewReader("x\r\n")),
	} {
		_, err := c.Submit(t.Context(), sub)
		if r := smtpreply.From(err).Reply(); r.GetCode() != 451 || strings.Contains(r.GetText(), "127.0.0.1") {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// Of two spools one is away.
func TestOneOfTwoSpools(t *testing.T) {
	nowhere, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nowhere.Close() })
	c := client(t, gatewayrpc.Options{}, nowhere, serve(t, &fakeSpool{on: acceptAll}))
	if _, err := c.Submit(t.Context(), small("x\r\n")); err != nil {
		t.Error(err)
	}
}

// Ids are minted from the spool's clock, not from this machine's.
func TestClock(t *testing.T) {
	then := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	c := client(t, gatewayrpc.Options{}, serve(t, &fakeSpool{now: then, on: acceptAll}))
	if _, err := c.Submit(t.Context(), small("x\r\n")); err != nil {
		t.Fatal(err)
	}
	if now := c.Now(); now.Before(then) || now.After(then.Add(patience)) {
		t.Errorf("Now() = %v, want about %v", now, then)
	}
}
