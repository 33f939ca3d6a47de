package stack

import (
	"context"
	"errors"
	"io"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
)

// Discarder is a spool that acknowledges every message at once and keeps nothing, to measure a gateway alone. It breaks
// promise P1 on purpose: for measurements only.
type Discarder struct {
	spoolv1.UnimplementedSpoolServiceServer
}

// Discard serves a [Discarder] in place of the spool of a configuration until ctx ends.
func Discard(ctx context.Context, cfg *services.Config) error {
	server, _, err := process.LoadTLS(cfg.TLS, process.Spool)
	if err != nil {
		return err
	}
	s, err := process.NewServer(process.ServerOptions{TLS: server, Trusted: server == nil})
	if err != nil {
		return err
	}
	spoolv1.RegisterSpoolServiceServer(s, Discarder{})
	lis, err := process.Listen(ctx, "spool.listen", cfg.Spool.Listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, s.Stop)
	if err := s.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Submit implements [spoolv1.SpoolServiceServer].
func (Discarder) Submit(stream spoolv1.SpoolService_SubmitServer) error {
	hello := &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: "discard", Incarnation: 1, Time: timestamppb.Now()}
	frames := []*spoolv1.SubmitReplyFrame{{Kind: &spoolv1.SubmitReplyFrame_Hello{Hello: hello}}}
	if err := stream.Send(&spoolv1.SubmitResponse{Frames: frames}); err != nil {
		return err
	}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		frames = frames[:0]
		for _, frame := range req.GetFrames() {
			var id string
			switch kind := frame.GetKind().(type) {
			case *spoolv1.SubmitFrame_Message:
				id = kind.Message.GetBegin().GetId()
			case *spoolv1.SubmitFrame_End:
				id = kind.End.GetId()
			default:
				continue
			}
			if _, err := uuid.Parse(id); err != nil {
				return status.Errorf(codes.InvalidArgument, "%q is no id", id)
			}
			frames = append(frames, &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Accepted{Accepted: &spoolv1.SubmitAccepted{Id: id}}})
		}
		if len(frames) == 0 {
			continue
		}
		if err := stream.Send(&spoolv1.SubmitResponse{Frames: frames}); err != nil {
			return err
		}
	}
}
