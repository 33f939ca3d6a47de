package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
)

// ServerOptions says how a gRPC server knows its callers and what it tells of itself. Exactly one of TLS, Token and
// Trusted must be given.
type ServerOptions struct {
	// TLS asks every caller for a certificate; its name decides what it may call. See [LoadTLS].
	TLS *tls.Config
	// Token lets a caller that knows it do everything; for listeners on loopback. See [MakeToken].
	Token string
	// Trusted lets everybody do everything: for listeners inside the process, and for tests.
	Trusted bool
	// Logger gets panics of handlers. Nil means slog.Default.
	Logger *slog.Logger
	// TracerProvider gets a span for each unary call of an operator; mail has its own spans, since its streams have no
	// end. Nil means none.
	TracerProvider trace.TracerProvider
	// Reflection lets tools such as grpcurl list the services: for development.
	Reflection bool
}

// Server is a gRPC server with its health service.
type Server struct {
	*grpc.Server
	// Health tells what is served; the empty service stands for the process. It starts as serving.
	Health *health.Server
}

// NewServer makes a server with health service, authorization, recovery of panics, and the windows and keepalives of
// package rpcopt. Register the services, then run it by [ServeGRPC].
func NewServer(opts ServerOptions) (*Server, error) {
	means := 0
	for _, given := range []bool{opts.TLS != nil, opts.Token != "", opts.Trusted} {
		if given {
			means++
		}
	}
	if means != 1 {
		return nil, errors.New("process: a server needs exactly one of TLS, Token and Trusted")
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	creds := insecure.NewCredentials()
	if opts.TLS != nil {
		creds = credentials.NewTLS(opts.TLS)
	}
	auth := authorizer{trusted: opts.Trusted, token: opts.Token}
	guard := guard{auth: auth, logger: opts.Logger}
	server := grpc.NewServer(append(rpcopt.ServerOptions(),
		grpc.Creds(creds),
		grpc.StatsHandler(otelgrpc.NewServerHandler(traceOptions(opts.TracerProvider)...)),
		grpc.ChainUnaryInterceptor(guard.unary),
		grpc.ChainStreamInterceptor(guard.stream),
	)...)
	checks := health.NewServer()
	healthv1.RegisterHealthServer(server, checks)
	if opts.Reflection {
		reflection.Register(server)
	}
	return &Server{Server: server, Health: checks}, nil
}

func traceOptions(provider trace.TracerProvider) []otelgrpc.Option {
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(traced),
	}
}

// traced picks the calls that get a span: those of operators that have an end. A span of Submit or Work would last as
// long as the process and belong to no message.
func traced(info *stats.RPCTagInfo) bool {
	return strings.HasPrefix(info.FullMethodName, "/"+adminv1.AdminService_ServiceDesc.ServiceName+"/") &&
		info.FullMethodName != adminv1.AdminService_WatchEvents_FullMethodName
}

// guard holds the interceptors: who may call, and what a panic becomes.
type guard struct {
	auth   authorizer
	logger *slog.Logger
}

func (g guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer g.recover(ctx, info.FullMethod, &err)
	id, err := g.auth.authorize(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(context.WithValue(ctx, callerKey{}, id), req)
}

func (g guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer g.recover(ss.Context(), info.FullMethod, &err)
	id, err := g.auth.authorize(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if info.FullMethod == spoolv1.SpoolService_Work_FullMethodName {
		ss = &workGuard{ServerStream: ss, id: id}
	}
	return handler(srv, ss)
}

// recover makes INTERNAL of a panic, so that one bad message does not end the process (promise P5). The caller learns
// nothing of it; the log does.
func (g guard) recover(ctx context.Context, method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	g.logger.ErrorContext(ctx, "a call panicked",
		slog.String("method", method), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	*err = status.Error(codes.Internal, "internal error")
}

// workGuard checks that a worker registers for the stage that its certificate names.
type workGuard struct {
	grpc.ServerStream
	id         identity
	registered atomic.Bool
}

// RecvMsg reads the next frames and looks at every registration in them.
func (w *workGuard) RecvMsg(m any) error {
	if err := w.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	request, ok := m.(*spoolv1.WorkRequest)
	if !ok {
		return status.Errorf(codes.Internal, "work stream carries %T", m)
	}
	for _, frame := range request.GetFrames() {
		register := frame.GetRegister()
		if register == nil {
			if !w.registered.Load() {
				return status.Error(codes.InvalidArgument, "the first frame must register the worker")
			}
			continue
		}
		service := stageService(register.GetStage())
		if service == "" {
			return status.Errorf(codes.InvalidArgument, "stage %v is not known", register.GetStage())
		}
		if !w.id.is(service) {
			return status.Errorf(codes.PermissionDenied, "%s may not register as %s", who(w.id), service)
		}
		w.registered.Store(true)
	}
	return nil
}

// DialOptions says how a client makes itself known.
type DialOptions struct {
	// TLS is the client side of [LoadTLS]; nil means clear text.
	TLS *tls.Config
	// Token is sent with every call. Without TLS only to a loopback address.
	Token string
	// TracerProvider gets a span for each unary call to AdminService. Nil means none.
	TracerProvider trace.TracerProvider
	// Dialer connects in place of the network, as to a bufconn listener. The target is then `passthrough:///name`.
	Dialer func(ctx context.Context, target string) (net.Conn, error)
}

// Dial makes a client connection to host:port with the windows, keepalives and back-off of package rpcopt. It does not
// wait: the first call connects. The caller closes it.
//
// Each try to connect asks for the addresses of the host anew and takes the first that answers.
func Dial(target string, opts DialOptions) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if opts.TLS != nil {
		creds = credentials.NewTLS(opts.TLS)
	}
	options := append(rpcopt.DialOptions(),
		grpc.WithTransportCredentials(creds),
		// No TXT record is asked for a service config: in a network without a way out it costs many seconds.
		grpc.WithDisableServiceConfig(),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(traceOptions(opts.TracerProvider)...)),
	)
	if opts.Token != "" {
		if opts.TLS == nil && opts.Dialer == nil && !Loopback(target) {
			return nil, Usage("%s: the token is only sent to a loopback address or over TLS; use 127.0.0.1 or give certificates", target)
		}
		options = append(options, grpc.WithPerRPCCredentials(tokenCredential(opts.Token)))
	}
	if opts.Dialer != nil {
		options = append(options, grpc.WithContextDialer(opts.Dialer))
	}
	conn, err := grpc.NewClient(resolvedWhenDialled(target), options...)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", target, err)
	}
	return conn, nil
}

// resolvedWhenDialled leaves the look-up of a host to whoever connects. gRPC's own resolver asks at most every 30 s, and
// less and less often once a name is not known: a spool that came back at another address, or whose name was gone while it
// was away, would not be found for a long time.
func resolvedWhenDialled(target string) string {
	if _, _, err := net.SplitHostPort(target); err != nil || strings.Contains(target, "/") {
		return target // a URL, such as passthrough:///name
	}
	return "passthrough:///" + target
}

// Loopback tells whether host:port can be reached from this machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
