package rpcopt

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// echo sends back what it is sent.
type echo struct {
	spoolv1.UnimplementedSpoolServiceServer
}

func (echo) ReadContent(req *spoolv1.ReadContentRequest, stream spoolv1.SpoolService_ReadContentServer) error {
	return stream.Send(&spoolv1.ReadContentResponse{Data: req.GetToken()})
}

func (echo) Submit(stream spoolv1.SpoolService_SubmitServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		text := req.GetFrames()[0].GetMessage().GetBegin().GetEnvelope().GetSender()
		if err := stream.Send(&spoolv1.SubmitResponse{Frames: []*spoolv1.SubmitReplyFrame{{Kind: &spoolv1.SubmitReplyFrame_Refused{
			Refused: &spoolv1.SubmitRefused{Reply: &mailv1.Reply{Code: 451, Text: text}},
		}}}}); err != nil {
			return err
		}
	}
}

func dial(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	s := grpc.NewServer(server...)
	spoolv1.RegisterSpoolServiceServer(s, echo{})
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(lis) }() // returns nil once stopped
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:bufconn", append(client,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A peer may use gRPC's own codec, and messages without generated code are understood.
func TestCodecSpeaksWithOthers(t *testing.T) {
	for name, conn := range map[string]*grpc.ClientConn{
		"both ours":           dial(t, ServerOptions(), DialOptions()...),
		"another's client":    dial(t, ServerOptions()),
		"another's server":    dial(t, nil, DialOptions()...),
		"with a content type": dial(t, ServerOptions(), grpc.WithDefaultCallOptions(grpc.CallContentSubtype("proto"))),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
			for _, size := range []int{1, 1000, 300 << 10} {
				want := make([]byte, size)
				stream, err := spoolv1.NewSpoolServiceClient(conn).ReadContent(t.Context(), &spoolv1.ReadContentRequest{Token: want})
				if err != nil {
					t.Fatal(err)
				}
				resp, err := stream.Recv()
				if err != nil || !proto.Equal(resp, &spoolv1.ReadContentResponse{Data: want}) {
					t.Errorf("%d octets: %d came back: %v", size, len(resp.GetData()), err)
				}
			}
		})
	}
}

// A string that is not UTF-8 goes no further than whoever has it.
func TestCodecRefusesWhatIsNotUTF8(t *testing.T) {
	spool := spoolv1.NewSpoolServiceClient(dial(t, ServerOptions(), DialOptions()...))
	for text, want := range map[string]codes.Code{"é": codes.OK, "\xff": codes.Internal} {
		stream, err := spool.Submit(t.Context()) // each has its own: a frame that can't be encoded ends it
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{{Kind: &spoolv1.SubmitFrame_Message{
			Message: &spoolv1.SubmitMessage{Begin: &spoolv1.SubmitBegin{Envelope: &mailv1.Envelope{Sender: text}}},
		}}}})
		if status.Code(err) != want {
			t.Errorf("sending %q: %v, want %v", text, err, want)
		}
	}
}
