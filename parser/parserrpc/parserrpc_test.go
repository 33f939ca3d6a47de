package parserrpc_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/rohrpost/rohrpost/parser"
	"github.com/rohrpost/rohrpost/parser/parserrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
)

const sample = "From: anna@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nHello.\r\n"

func TestHandlerInline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, content, subject, text string
	}{
		{"a mail", sample, "Grüße", "Hello.\r\n"},
		{"an empty mail (case C9)", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			job := &worker.Job{Job: &spoolv1.Job{Content: []byte(c.content), ContentSize: int64(len(c.content))}}
			result, err := parserrpc.Handler(parser.DefaultLimits())(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			parsed := result.GetParse().GetParsed()
			if parsed.GetSubject() != c.subject || parsed.GetText() != c.text || parsed.GetSize() != int64(len(c.content)) {
				t.Errorf("got %v", parsed)
			}
		})
	}
}

// fakeSpool gives out one job whose content has to be read and waits for its result.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	content string
	size    int64
	results chan *spoolv1.Result
}

func (f *fakeSpool) Work(stream spoolv1.SpoolService_WorkServer) error {
	hello := &spoolv1.SpoolHello{ProtocolVersion: 1, Spool: "fake"}
	job := &spoolv1.Job{
		Token: []byte("token"), MessageId: "0193", ContentSize: f.size,
		Work: &spoolv1.Job_Parse{Parse: &spoolv1.ParseWork{}},
	}
	if err := stream.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{
		{Kind: &spoolv1.SpoolFrame_Hello{Hello: hello}},
	}}); err != nil {
		return err
	}
	given := false
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, frame := range request.GetFrames() {
			switch {
			case frame.GetCredits() != nil && !given:
				given = true
				if err := stream.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{
					{Kind: &spoolv1.SpoolFrame_Job{Job: job}},
				}}); err != nil {
					return err
				}
			case frame.GetResult() != nil:
				f.results <- frame.GetResult()
				if err := stream.Send(&spoolv1.WorkResponse{Frames: []*spoolv1.SpoolFrame{
					{Kind: &spoolv1.SpoolFrame_ResultAck{ResultAck: &spoolv1.ResultAck{
						Token: frame.GetResult().GetToken(), Status: spoolv1.ResultAckStatus_RESULT_ACK_STATUS_COUNTED,
					}}},
				}}); err != nil {
					return err
				}
			}
		}
	}
}

func (f *fakeSpool) ReadContent(_ *spoolv1.ReadContentRequest, stream spoolv1.SpoolService_ReadContentServer) error {
	for rest := f.content; rest != ""; {
		n := min(len(rest), 256<<10)
		if err := stream.Send(&spoolv1.ReadContentResponse{Data: []byte(rest[:n])}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// TestHandlerLarge reads content that does not ride in the job (case H7), also where the spool sends too little.
func TestHandlerLarge(t *testing.T) {
	t.Parallel()
	content := sample + strings.Repeat("0123456789abcdef\r\n", 100_000)
	for _, c := range []struct {
		name string
		size int64
		fail bool
	}{
		{"as long as announced", int64(len(content)), false},
		{"cut short", int64(len(content)) + 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			result := oneJob(t, &fakeSpool{content: content, size: c.size, results: make(chan *spoolv1.Result, 1)})
			if c.fail {
				if !strings.Contains(result.GetFailure().GetReason(), io.ErrUnexpectedEOF.Error()) {
					t.Errorf("got %v, want a failure", result)
				}
				return
			}
			parsed := result.GetParse().GetParsed()
			if parsed.GetSubject() != "Grüße" || parsed.GetSize() != c.size || !parsed.GetTextTruncated() {
				t.Errorf("got subject %q, size %d", parsed.GetSubject(), parsed.GetSize())
			}
		})
	}
}

// oneJob runs a worker against a spool until the spool has a result.
func oneJob(t *testing.T, spool *fakeSpool) *spoolv1.Result {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(server, spool)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///spool", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() {
		ran <- worker.Run(ctx, conn, spoolv1.Stage_STAGE_PARSER, 1, parserrpc.Handler(parser.DefaultLimits()))
	}()
	defer func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	select {
	case result := <-spool.results:
		return result
	case <-time.After(20 * time.Second):
		t.Fatal("no result")
		return nil
	}
}
