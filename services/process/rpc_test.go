package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// fakeSpool answers every call that gets through.
type fakeSpool struct {
	spoolv1.UnimplementedSpoolServiceServer
	adminv1.UnimplementedAdminServiceServer
	sendv1.UnimplementedSendServiceServer
}

// SendMessage answers with who calls.
func (fakeSpool) SendMessage(ctx context.Context, _ *sendv1.SendMessageRequest) (*sendv1.SendMessageResponse, error) {
	return &sendv1.SendMessageResponse{Id: Caller(ctx)}, nil
}

func (fakeSpool) WaitMessage(context.Context, *adminv1.WaitMessageRequest) (*adminv1.WaitMessageResponse, error) {
	return &adminv1.WaitMessageResponse{}, nil
}

func (fakeSpool) Submit(s grpc.BidiStreamingServer[spoolv1.SubmitRequest, spoolv1.SubmitResponse]) error {
	return s.Send(&spoolv1.SubmitResponse{})
}

func (fakeSpool) Work(s grpc.BidiStreamingServer[spoolv1.WorkRequest, spoolv1.WorkResponse]) error {
	for {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return s.Send(&spoolv1.WorkResponse{})
		} else if err != nil {
			return err
		}
	}
}

func (fakeSpool) ReadContent(_ *spoolv1.ReadContentRequest, s grpc.ServerStreamingServer[spoolv1.ReadContentResponse]) error {
	return s.Send(&spoolv1.ReadContentResponse{})
}

func (fakeSpool) GetMessage(_ context.Context, request *adminv1.GetMessageRequest) (*adminv1.GetMessageResponse, error) {
	if request.GetId() == "panic" {
		panic("boom")
	}
	return &adminv1.GetMessageResponse{}, nil
}

// serve runs a server until the test ends.
func serve(t *testing.T, opts ServerOptions, lis net.Listener) {
	t.Helper()
	opts.Logger = testLogger(t, opts.Logger)
	server, err := NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	spoolv1.RegisterSpoolServiceServer(server, fakeSpool{})
	adminv1.RegisterAdminServiceServer(server, fakeSpool{})
	sendv1.RegisterSendServiceServer(server, fakeSpool{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeGRPC(ctx, server, lis, time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func testLogger(t *testing.T, given *slog.Logger) *slog.Logger {
	t.Helper()
	if given != nil {
		return given
	}
	return slog.New(slog.DiscardHandler)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := Listen(t.Context(), "test.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func dial(t *testing.T, target string, opts DialOptions) *grpc.ClientConn {
	t.Helper()
	conn, err := Dial(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// calls are all kinds of calls that a peer may try.
var calls = map[string]func(context.Context, *grpc.ClientConn) error{
	"submit": func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := spoolv1.NewSpoolServiceClient(conn).Submit(ctx)
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	},
	"work parser":  work(spoolv1.Stage_STAGE_PARSER),
	"work filter":  work(spoolv1.Stage_STAGE_FILTER),
	"work deliver": work(spoolv1.Stage_STAGE_DELIVER),
	"read": func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := spoolv1.NewSpoolServiceClient(conn).ReadContent(ctx, &spoolv1.ReadContentRequest{})
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	},
	"admin": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := adminv1.NewAdminServiceClient(conn).GetMessage(ctx, &adminv1.GetMessageRequest{})
		return err
	},
	"wait": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := adminv1.NewAdminServiceClient(conn).WaitMessage(ctx, &adminv1.WaitMessageRequest{})
		return err
	},
	"send": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := sendv1.NewSendServiceClient(conn).SendMessage(ctx, &sendv1.SendMessageRequest{})
		return err
	},
	"health": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	},
}

func work(stages ...spoolv1.Stage) func(context.Context, *grpc.ClientConn) error {
	return func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := spoolv1.NewSpoolServiceClient(conn).Work(ctx)
		if err != nil {
			return err
		}
		for _, stage := range stages {
			frame := &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Register{Register: &spoolv1.Register{Stage: stage}}}
			if err := s.Send(&spoolv1.WorkRequest{Frames: []*spoolv1.WorkerFrame{frame}}); err != nil {
				break // the status comes by Recv
			}
		}
		_ = s.CloseSend()
		_, err = s.Recv()
		return err
	}
}

func TestMutualTLSDecidesWhoMayCallWhat(t *testing.T) {
	dir := t.TempDir()
	if _, err := MakeCertificates(dir, CertificateOptions{Services: append(CertificateServices(), Operator, Application)}); err != nil {
		t.Fatal(err)
	}
	serverTLS, _, err := LoadTLS(TLSConfig{Dir: dir}, Spool)
	if err != nil {
		t.Fatal(err)
	}
	lis := listen(t)
	serve(t, ServerOptions{TLS: serverTLS}, lis)
	allowed := map[string][]string{
		Gateway:  {"submit", "health"},
		Parser:   {"work parser", "read", "health"},
		Filter:   {"work filter", "read", "health"},
		Deliver:  {"work deliver", "read", "health"},
		Console:  {"admin", "wait", "health"},
		CLI:      {"admin", "wait", "send", "health"},
		Operator: {"admin", "wait", "send", "health"},
		Spool:    {"health"},
		// An application sees what becomes of its own mail, not everybody's.
		Application: {"wait", "send", "health"},
	}
	for service, may := range allowed {
		t.Run(service, func(t *testing.T) {
			_, clientTLS, err := LoadTLS(TLSConfig{Dir: dir}, service)
			if err != nil {
				t.Fatal(err)
			}
			conn := dial(t, lis.Addr().String(), DialOptions{TLS: clientTLS})
			for name, call := range calls {
				want := codes.PermissionDenied
				if contains(may, name) {
					want = codes.OK
				}
				if err := call(t.Context(), conn); status.Code(err) != want {
					t.Errorf("%s: got %v, want %v", name, err, want)
				}
			}
		})
	}
	t.Run("second registration", func(t *testing.T) {
		_, clientTLS, err := LoadTLS(TLSConfig{Dir: dir}, Parser)
		if err != nil {
			t.Fatal(err)
		}
		conn := dial(t, lis.Addr().String(), DialOptions{TLS: clientTLS})
		err = work(spoolv1.Stage_STAGE_PARSER, spoolv1.Stage_STAGE_DELIVER)(t.Context(), conn)
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	})
	t.Run("strangers", func(t *testing.T) {
		other := t.TempDir()
		if _, err := MakeCertificates(other, CertificateOptions{Services: []string{Gateway}}); err != nil {
			t.Fatal(err)
		}
		_, foreign, err := LoadTLS(TLSConfig{Dir: other}, Gateway)
		if err != nil {
			t.Fatal(err)
		}
		foreign.InsecureSkipVerify = true // the server must refuse us, not we it
		for name, cfg := range map[string]*tls.Config{"another CA": foreign, "clear text": nil} {
			conn := dial(t, lis.Addr().String(), DialOptions{TLS: cfg})
			if err := calls["health"](t.Context(), conn); status.Code(err) != codes.Unavailable {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func TestCallerIsKnownToHandlers(t *testing.T) {
	dir := t.TempDir()
	if _, err := MakeCertificates(dir, CertificateOptions{Services: []string{Spool, Application}}); err != nil {
		t.Fatal(err)
	}
	serverTLS, _, err := LoadTLS(TLSConfig{Dir: dir}, Spool)
	if err != nil {
		t.Fatal(err)
	}
	_, clientTLS, err := LoadTLS(TLSConfig{Dir: dir}, Application)
	if err != nil {
		t.Fatal(err)
	}
	for want, opts := range map[string]struct {
		server ServerOptions
		client DialOptions
	}{
		"application": {ServerOptions{TLS: serverTLS}, DialOptions{TLS: clientTLS}},
		"token":       {ServerOptions{Token: "a secret of the test"}, DialOptions{Token: "a secret of the test"}},
		"":            {ServerOptions{Trusted: true}, DialOptions{}},
	} {
		lis := listen(t)
		serve(t, opts.server, lis)
		conn := dial(t, lis.Addr().String(), opts.client)
		got, err := sendv1.NewSendServiceClient(conn).SendMessage(t.Context(), &sendv1.SendMessageRequest{})
		if err != nil || got.GetId() != want {
			t.Errorf("got %q, %v; want %q", got.GetId(), err, want)
		}
	}
}

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

func TestTokenOpensEverything(t *testing.T) {
	token, err := MakeToken(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lis := listen(t)
	serve(t, ServerOptions{Token: token}, lis)
	for name, test := range map[string]struct {
		token string
		want  codes.Code
	}{"right": {token, codes.OK}, "wrong": {token[1:] + "x", codes.Unauthenticated}, "none": {"", codes.Unauthenticated}} {
		conn := dial(t, lis.Addr().String(), DialOptions{Token: test.token})
		for call, do := range calls {
			want := test.want
			if call == "health" {
				want = codes.OK
			}
			if err := do(t.Context(), conn); status.Code(err) != want {
				t.Errorf("%s token, %s: got %v, want %v", name, call, err, want)
			}
		}
	}
	if _, err := Dial("192.0.2.1:7025", DialOptions{Token: token}); ExitCode(err) != ExitUsage {
		t.Errorf("the token would go out in clear text: %v", err)
	}
}

func TestTrustedListenerInTheProcess(t *testing.T) {
	lis := bufconn.Listen(1 << 20)
	serve(t, ServerOptions{Trusted: true}, lis)
	conn := dial(t, "passthrough:///spool", DialOptions{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	for name, call := range calls {
		if err := call(t.Context(), conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A host is looked up by whoever connects, each time: a spool may come back at another address (RFC 6761 has it that no
// address is known for .invalid, so gRPC's own resolver would not get as far as the dialer).
func TestHostIsLookedUpForEachConnection(t *testing.T) {
	dialled := make(chan string, 1)
	conn := dial(t, "spool.invalid:7025", DialOptions{Dialer: func(_ context.Context, target string) (net.Conn, error) {
		select {
		case dialled <- target:
		default:
		}
		return nil, errors.New("nothing there")
	}})
	conn.Connect()
	for range 2 {
		select {
		case target := <-dialled:
			if target != "spool.invalid:7025" {
				t.Errorf("%s was dialled", target)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the name did not reach the dialer")
		}
		conn.ResetConnectBackoff()
		conn.Connect()
	}
}

func TestServerNeedsOneMeans(t *testing.T) {
	for name, opts := range map[string]ServerOptions{
		"none": {}, "two": {Token: "x", Trusted: true}, "tls and trust": {TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Trusted: true},
	} {
		if _, err := NewServer(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPanicBecomesInternal(t *testing.T) {
	var log bytes.Buffer
	lis := listen(t)
	serve(t, ServerOptions{Trusted: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}, lis)
	conn := dial(t, lis.Addr().String(), DialOptions{})
	admin := adminv1.NewAdminServiceClient(conn)
	_, err := admin.GetMessage(t.Context(), &adminv1.GetMessageRequest{Id: "panic"})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v", err)
	}
	if _, err := admin.GetMessage(t.Context(), &adminv1.GetMessageRequest{}); err != nil {
		t.Errorf("the server is gone: %v", err)
	}
	if !strings.Contains(log.String(), "boom") {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
}

func TestUnlistedMethodIsNobodys(t *testing.T) {
	for _, method := range []string{"/rohrpost.spool.v1.SpoolService/Format", "/other/Call", ""} {
		if allowed := allowedPeers(method); len(allowed) != 0 {
			t.Errorf("%s: %v", method, allowed)
		}
	}
}

func TestListenNamesWhatIsInUse(t *testing.T) {
	lis := listen(t)
	defer lis.Close()
	_, err := Listen(t.Context(), "gateway.listen", lis.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "gateway.listen") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}
