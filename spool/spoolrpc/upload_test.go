package spoolrpc

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

func TestSubmitTooManyUploads(t *testing.T) {
	client, _ := dial(t, newFakeEngine(), Options{})
	g := openSubmit(testContext(t), t, client)
	for range maxUploads {
		g.send(t, beginFrame(newID()))
	}
	id := newID()
	g.send(t, beginFrame(id), chunkFrame(id, []byte("x")), endFrame(id, 1))
	if got := g.next(t).GetRefused(); got.GetId() != id || got.GetReply().GetCode() != 451 {
		t.Errorf("got %v, want 451 for %s", got, id)
	}
}

// Content that turns out small is handed over whole, so that it can ride in jobs.
func TestUploadOfSmallContent(t *testing.T) {
	for _, size := range []int{0, 1, spool.InlineLimit} {
		e := newFakeEngine()
		client, _ := dial(t, e, Options{})
		g := openSubmit(testContext(t), t, client)
		id, content := newID(), bytes.Repeat([]byte("x"), size)
		g.send(t, beginFrame(id))
		for piece := range slices.Chunk(content, 60000) {
			g.send(t, chunkFrame(id, piece))
		}
		g.send(t, endFrame(id, int64(size)))
		if g.next(t).GetAccepted().GetId() != id {
			t.Fatal("not accepted")
		}
		if sub := e.submitted[0]; sub.Content == nil || !bytes.Equal(sub.Content, content) || len(e.uploads) != 0 {
			t.Errorf("%d octets came as %d octets and %d uploads", size, len(sub.Content), len(e.uploads))
		}
	}
}

// A large message is held back by the spool's pace and arrives unchanged (cases H6, H7).
func TestUploadIsHeldBack(t *testing.T) {
	const size = 20 << 20
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	open := make(chan struct{})
	blocked := make(chan struct{})
	var once sync.Once
	e := newFakeEngine()
	e.write = func(ctx context.Context, u *fakeUpload, _ []byte) error {
		once.Do(func() { close(blocked) })
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var got []byte
	e.submit = func(_ spool.Submission, u *fakeUpload, done func(spool.Receipt, error)) {
		got = u.bytes()
		done(spool.Receipt{}, nil)
	}
	client, _ := dial(t, e, Options{})
	g := openSubmit(testContext(t), t, client)
	id := newID()
	var sent atomic.Int64
	sendErr := make(chan error, 1)
	go func() {
		_ = g.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{beginFrame(id)}})
		for piece := range slices.Chunk(content, 200<<10) {
			if err := g.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{chunkFrame(id, piece)}}); err != nil {
				sendErr <- err
				return
			}
			sent.Add(int64(len(piece)))
		}
		sendErr <- g.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{endFrame(id, size)}})
	}()
	within(t, "write", blocked)
	for last := int64(-1); sent.Load() != last; time.Sleep(100 * time.Millisecond) {
		last = sent.Load()
	}
	if sent.Load() > 4<<20 {
		t.Errorf("%d octets were taken while nothing could be written", sent.Load())
	}
	close(open)
	if g.next(t).GetAccepted().GetId() != id {
		t.Fatal("not accepted")
	}
	if err := <-sendErr; err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d octets arrived, want %d as sent; sending: %v", len(got), size, err)
	}
}

// The client waits only so long: an upload that does not end, or cannot be written, is refused in time (case B1).
func TestUploadDeadline(t *testing.T) {
	for name, frames := range map[string]func(id string) []*spoolv1.SubmitFrame{
		"no more chunks": func(id string) []*spoolv1.SubmitFrame { return nil },
		"slow store": func(id string) []*spoolv1.SubmitFrame {
			return []*spoolv1.SubmitFrame{chunkFrame(id, make([]byte, 200<<10)), endFrame(id, 200<<10)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine()
			e.write = func(ctx context.Context, _ *fakeUpload, _ []byte) error {
				<-ctx.Done()
				return fmt.Errorf("writing: %w", ctx.Err())
			}
			client, _ := dial(t, e, Options{})
			g := openSubmit(testContext(t), t, client)
			id := newID()
			begin := beginFrame(id)
			begin.GetBegin().Deadline = durationpb.New(50 * time.Millisecond)
			g.send(t, append([]*spoolv1.SubmitFrame{begin}, frames(id)...)...)
			if r := g.next(t).GetRefused(); r.GetId() != id || r.GetReply().GetEnhancedCode() != "4.4.2" {
				t.Errorf("got %v, want 4.4.2", r)
			}
		})
	}
}
