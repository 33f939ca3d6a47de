package spoolrpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

// What a gateway may leave unanswered on one stream. Beyond that the stream is not read further.
const (
	maxUnanswered      = 4096
	maxUnansweredBytes = 32 << 20
)

// submitTick is how often a stream looks for uploads that have run out of time and for news in the hello.
const submitTick = time.Second

// submitStream is one Submit stream. Its fields belong to the goroutine that handles the stream, but for out and window,
// which the spool's answers reach as well.
type submitStream struct {
	engine engine
	log    *slog.Logger
	out    *outbox[*spoolv1.SubmitReplyFrame]
	window *window

	uploads map[spool.ID]*transfer
	// refused holds uploads that were refused before their end: frames that were under way are passed over in silence.
	refused map[spool.ID]struct{}
	hello   spool.Hello // as last told
}

// Submit takes messages from a gateway. Once the stream has ended, messages that were whole go on: the gateway submits
// them again under the same ids, which is idempotent. Those that were not are given up.
func (s *Server) Submit(stream spoolv1.SpoolService_SubmitServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	gateway, err := readSubmitHello(first)
	if err != nil {
		return err
	}
	hello, ok := s.engine.Hello()
	if !ok || s.drains() {
		return errNoIncarnation
	}
	st := &submitStream{
		engine:  s.engine,
		log:     s.log.With(slog.String("gateway", gateway)),
		out:     newOutbox[*spoolv1.SubmitReplyFrame](),
		window:  newWindow(maxUnanswered, maxUnansweredBytes),
		uploads: make(map[spool.ID]*transfer),
		refused: make(map[spool.ID]struct{}),
	}
	defer st.abandon()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	if err := st.sendHello(ctx, hello); err != nil {
		return err
	}
	go func() {
		cancel(st.out.run(ctx, func(frames []*spoolv1.SubmitReplyFrame) error {
			err := stream.Send(&spoolv1.SubmitResponse{Frames: frames})
			st.window.leave(len(frames), 0)
			return err
		}))
	}()
	if err := st.frames(ctx, first.GetFrames()[1:]); err != nil {
		return err
	}
	return st.run(ctx, receive(ctx, stream.Recv), s.drain)
}

// errNoIncarnation means that the spool has no right to take anything now.
var errNoIncarnation = status.Error(codes.Unavailable, "the spool is not ready, use another")

func readSubmitHello(req *spoolv1.SubmitRequest) (gateway string, err error) {
	var hello *spoolv1.SubmitHello
	if frames := req.GetFrames(); len(frames) > 0 {
		hello = frames[0].GetHello()
	}
	switch {
	case hello == nil:
		return "", status.Error(codes.InvalidArgument, "the first frame of a Submit stream must be a hello")
	case hello.GetProtocolVersion() < protocolVersion:
		return "", status.Errorf(codes.InvalidArgument, "protocol version %d is not known, want %d or higher",
			hello.GetProtocolVersion(), protocolVersion)
	case len(hello.GetGateway()) > maxName:
		return "", status.Errorf(codes.InvalidArgument, "the gateway's name is longer than %d octets", maxName)
	}
	return hello.GetGateway(), nil
}

// run handles the stream until it ends.
func (st *submitStream) run(
	ctx context.Context, in <-chan received[*spoolv1.SubmitRequest], drain <-chan struct{},
) error {
	tick := time.NewTicker(submitTick)
	defer tick.Stop()
	for {
		var err error
		select {
		case r := <-in:
			if errors.Is(r.err, io.EOF) {
				st.abandon()
				return st.window.empty(ctx)
			}
			if err = r.err; err == nil {
				err = st.frames(ctx, r.req.GetFrames())
			}
		case <-drain:
			drain = nil
			err = st.put(ctx, &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Drain{Drain: &spoolv1.Drain{}}})
		case now := <-tick.C:
			err = st.tick(ctx, now)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (st *submitStream) tick(ctx context.Context, now time.Time) error {
	for id, t := range st.uploads {
		if now.After(t.sub.Deadline) {
			if err := st.fail(ctx, id, context.DeadlineExceeded); err != nil {
				return err
			}
		}
	}
	hello, ok := st.engine.Hello()
	if !ok || (hello.Incarnation == st.hello.Incarnation && slices.Equal(hello.Peers, st.hello.Peers)) {
		return nil
	}
	return st.sendHello(ctx, hello)
}

// put sends a frame, once there is room in the window.
func (st *submitStream) put(ctx context.Context, frame *spoolv1.SubmitReplyFrame) error {
	if err := st.window.enter(ctx, 0); err != nil {
		return err
	}
	st.out.put(frame)
	st.out.signal()
	return nil
}

func (st *submitStream) sendHello(ctx context.Context, hello spool.Hello) error {
	st.hello = hello
	return st.put(ctx, &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Hello{Hello: helloMessage(hello)}})
}

// refuse answers that a message was not taken. err is told to the client where it is a reply; everything else is a mistake in
// the message's own frames: it is logged, and the client is told 451 (promise P1).
func (st *submitStream) refuse(ctx context.Context, id string, err error) error {
	return st.put(ctx, st.refusal(ctx, id, err))
}

func (st *submitStream) refusal(ctx context.Context, id string, err error) *spoolv1.SubmitReplyFrame {
	reply := smtpreply.OfMessage(err)
	if cause := reply.Unwrap(); cause != nil {
		st.log.WarnContext(ctx, "message refused", slog.String("message_id", id), slog.Any("error", cause))
	}
	return &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Refused{
		Refused: &spoolv1.SubmitRefused{Id: id, Reply: reply.Reply()},
	}}
}

// submit hands a whole message to the spool, once there is room in the window. The window is left when the spool has
// answered and the answer is sent.
func (st *submitStream) submit(ctx context.Context, sub spool.Submission, content upload) error {
	n := len(sub.Content)
	if err := st.window.enter(ctx, n); err != nil {
		return err
	}
	id := sub.ID.String()
	st.engine.Submit(sub, content, func(receipt spool.Receipt, err error) {
		st.window.leave(0, n)
		if err != nil {
			st.out.put(st.refusal(ctx, id, smtpreply.From(err)))
		} else {
			st.out.put(acceptedFrame(id, receipt))
		}
		st.out.signal()
	})
	return nil
}

func acceptedFrame(id string, receipt spool.Receipt) *spoolv1.SubmitReplyFrame {
	accepted := &spoolv1.SubmitAccepted{Id: id}
	if receipt.SuspectedDuplicateOf != (spool.ID{}) {
		accepted.SuspectedDuplicateOf = receipt.SuspectedDuplicateOf.String()
	}
	return &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Accepted{Accepted: accepted}}
}

func helloMessage(hello spool.Hello) *spoolv1.SpoolHello {
	return &spoolv1.SpoolHello{
		ProtocolVersion: protocolVersion,
		Spool:           hello.Name,
		Incarnation:     int64(hello.Incarnation),
		Time:            timestamppb.New(hello.Time),
		Peers:           hello.Peers,
	}
}
