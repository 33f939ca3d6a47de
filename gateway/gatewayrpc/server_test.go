package gatewayrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// fakeSpool is a SpoolService whose behaviour a test decides frame by frame.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	name  string // serve gives one where it is empty
	now   time.Time
	peers []string
	// on is called for each frame of each stream after the hello, in order. What it returns is sent; an error ends the
	// stream.
	on func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error)
	// only is the highest number of a stream that is not refused; 0 for all.
	only int
	// rest is closed when all is answered: a stream on which nothing more is sent ends then. Nil: at once.
	rest chan struct{}
	// ended gets a value at the end of each stream, if set.
	ended chan struct{}

	mu      sync.Mutex
	streams int
	batches [][]*spoolv1.SubmitFrame
}

// serverStream is a stream as the test sees it.
type serverStream struct {
	number int // from 1, in the order of opening
	send   func(...*spoolv1.SubmitReplyFrame) error
	ctx    context.Context
}

func (f *fakeSpool) Submit(rpc grpc.BidiStreamingServer[spoolv1.SubmitRequest, spoolv1.SubmitResponse]) error {
	if f.ended != nil {
		defer func() { f.ended <- struct{}{} }()
	}
	f.mu.Lock()
	f.streams++
	s := &serverStream{number: f.streams, ctx: rpc.Context()}
	only, rest, peers := f.only, f.rest, f.peers
	f.mu.Unlock()
	if only > 0 && s.number > only {
		return errors.New("no more streams")
	}
	var sending sync.Mutex
	s.send = func(frames ...*spoolv1.SubmitReplyFrame) error {
		sending.Lock()
		defer sending.Unlock()
		return rpc.Send(&spoolv1.SubmitResponse{Frames: frames})
	}
	for first := true; ; first = false {
		req, err := rpc.Recv()
		if errors.Is(err, io.EOF) && rest != nil {
			select {
			case <-rest:
			case <-s.ctx.Done():
			}
			return nil
		}
		if err != nil {
			return err
		}
		frames := req.GetFrames()
		if first {
			if frames[0].GetHello().GetProtocolVersion() != 1 {
				return errors.New("no hello")
			}
			frames = frames[1:]
			if err := s.send(&spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Hello{Hello: &spoolv1.SpoolHello{
				ProtocolVersion: 1, Spool: f.name, Incarnation: 1, Time: timestamppb.New(f.now), Peers: peers,
			}}}); err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.batches = append(f.batches, frames)
		f.mu.Unlock()
		for _, frame := range frames {
			replies, err := f.on(s, frame)
			if err != nil {
				return err
			}
			if len(replies) > 0 {
				if err := s.send(replies...); err != nil {
					return err
				}
			}
		}
	}
}

func accepted(id string) *spoolv1.SubmitReplyFrame {
	return &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Accepted{Accepted: &spoolv1.SubmitAccepted{Id: id}}}
}

func refused(id string, code int32, enhanced string) *spoolv1.SubmitReplyFrame {
	return &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Refused{Refused: &spoolv1.SubmitRefused{
		Id: id, Reply: &mailv1.Reply{Code: code, EnhancedCode: enhanced, Text: "no"},
	}}}
}

// acceptAll accepts small messages at once and large ones at their end.
func acceptAll(_ *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
	switch {
	case f.GetMessage() != nil:
		return []*spoolv1.SubmitReplyFrame{accepted(f.GetMessage().GetBegin().GetId())}, nil
	case f.GetEnd() != nil:
		return []*spoolv1.SubmitReplyFrame{accepted(f.GetEnd().GetId())}, nil
	}
	return nil, nil
}

// served counts the spools of all tests.
var served atomic.Int64

// serve starts a spool and returns a connection to it.
func serve(t *testing.T, f *fakeSpool) grpc.ClientConnInterface {
	t.Helper()
	if f.name == "" {
		f.name = fmt.Sprintf("spool-%d", served.Add(1))
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(server, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///spool", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return conn
}

// client starts a client of spools.
func client(t *testing.T, opts gatewayrpc.Options, conns ...grpc.ClientConnInterface) *gatewayrpc.Client {
	t.Helper()
	if opts.MaxBackoff == 0 {
		opts.MinBackoff, opts.MaxBackoff = time.Millisecond, 10*time.Millisecond
	}
	c, err := gatewayrpc.New(conns, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Run does not return")
		}
	})
	return c
}
