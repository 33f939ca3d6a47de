package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Listen opens a TCP listener. The error names the configuration key and the mend.
func Listen(ctx context.Context, key, address string) (net.Listener, error) {
	var config net.ListenConfig
	lis, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return lis, nil
	}
	var opErr *net.OpError
	cause := err
	if errors.As(err, &opErr) {
		cause = opErr.Err
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use; stop the program that listens there or choose another address", key, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: %s may not be opened; ports below 1024 need root or CAP_NET_BIND_SERVICE", key, address)
	default:
		return nil, fmt.Errorf("%s: can't listen on %s: %w", key, address, cause)
	}
}

// ServeGRPC serves until ctx ends. Then it says that it is not serving, takes no new calls and waits for those under way,
// at most for grace; what is left after that is cut off. What feeds long-lived streams must have told them to end.
func ServeGRPC(ctx context.Context, server *Server, lis net.Listener, grace time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(lis) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	server.Health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(stopped)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		server.Stop()
		<-stopped
	}
	if err := <-failed; !errors.Is(err, grpc.ErrServerStopped) { // that is where the end came before the start
		return err
	}
	return nil
}

// SetServing tells the health service whether the process, and each named service, can do its work.
func (s *Server) SetServing(ok bool, services ...string) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if ok {
		state = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range append([]string{""}, services...) {
		s.Health.SetServingStatus(service, state)
	}
}

// The limits of an HTTP server: pages are small and callers are people.
const (
	httpHeaderTimeout = 5 * time.Second
	httpReadTimeout   = 10 * time.Second
	httpWriteTimeout  = 30 * time.Second
	httpIdleTimeout   = time.Minute
	httpStopTimeout   = 5 * time.Second
	httpMaxHeader     = 16 << 10
)

// ServeHTTP serves until ctx ends, then lets requests under way finish for a few seconds.
func ServeHTTP(ctx context.Context, handler http.Handler, lis net.Listener) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpMaxHeader,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(lis) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpStopTimeout)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		_ = server.Close() // whoever still holds a request open has had its time
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
