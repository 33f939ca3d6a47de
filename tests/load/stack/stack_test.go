package stack

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

func TestMain(m *testing.M) {
	if words := os.Getenv("STACK_TEST_SAY"); words != "" {
		_, _ = os.Stderr.WriteString(words)
		select {} // until it is stopped
	}
	goleak.VerifyTestMain(m)
}

// The share of garbage collection is read from what Go says of itself, whatever pieces it comes in.
func TestTail(t *testing.T) {
	const line = "gc 3 @0.101s 2%: 0.018+1.3+0.076 ms clock, 0.036+0.35/1.0/3.0+0.15 ms cpu, 4->4->2 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	var log tail
	for _, piece := range []string{"one\ntw", "o\ngc 3 @0.101s 2%: 0.018", line[len("gc 3 @0.101s 2%: 0.018"):], line, "three\n"} {
		if n, err := log.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := string(log.text); got != "one\ntwo\nthree\n" {
		t.Errorf("the log is %q", got)
	}
	if want := 2 * (0.036 + 0.35 + 1 + 3 + 0.15); log.gc < want-1e-9 || log.gc > want+1e-9 {
		t.Errorf("%g ms, want %g", log.gc, want)
	}
	for range 100 {
		_, _ = log.Write([]byte(strings.Repeat("x", 1000) + "\n"))
	}
	if len(log.text) != tailSize {
		t.Errorf("it keeps %d octets", len(log.text))
	}
}

func TestProcess(t *testing.T) {
	p, err := StartProcess("talker", []string{"STACK_TEST_SAY=hello\n"}, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); p.Log() != "hello\n"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it said %q", p.Log())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	if p.Err() == nil { // SIGTERM is no exit with 0
		t.Error("no error of its end")
	}
	if err := Greeted(ctx, "127.0.0.1:1", p); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("waiting for a process that has ended: %v", err)
	}
	if _, err := StartProcess("nobody", nil, "/nonexistent"); err == nil {
		t.Error("a program that is not there is no error")
	}
}

// A spool that discards acknowledges whole messages and the ends of long ones, by their ids.
func TestDiscarder(t *testing.T) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spoolv1.RegisterSpoolServiceServer(server, Discarder{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test is over then
	stream, err := spoolv1.NewSpoolServiceClient(conn).Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const one, two = "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"
	send := func(frames ...*spoolv1.SubmitFrame) {
		if err := stream.Send(&spoolv1.SubmitRequest{Frames: frames}); err != nil {
			t.Fatal(err)
		}
	}
	send(&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{Hello: &spoolv1.SubmitHello{ProtocolVersion: 1}}})
	resp, err := stream.Recv()
	if err != nil || resp.GetFrames()[0].GetHello().GetTime() == nil {
		t.Fatalf("hello: %v %v", resp, err)
	}
	send(&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{Message: &spoolv1.SubmitMessage{Begin: &spoolv1.SubmitBegin{Id: one}}}},
		&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Begin{Begin: &spoolv1.SubmitBegin{Id: two}}},
		&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_End{End: &spoolv1.SubmitEnd{Id: two}}})
	resp, err = stream.Recv()
	if err != nil || len(resp.GetFrames()) != 2 || resp.GetFrames()[0].GetAccepted().GetId() != one || resp.GetFrames()[1].GetAccepted().GetId() != two {
		t.Errorf("%v %v", resp, err)
	}
	send(&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_End{End: &spoolv1.SubmitEnd{Id: "no id"}}})
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

func TestCertificate(t *testing.T) {
	files, err := Certificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{files.Cert, files.Key} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
}
