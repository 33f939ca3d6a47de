// Package services is the wiring: one file for each process turns a domain into a process of its own, and up.go puts all
// of them into one. They talk over the same gRPC interfaces either way, so that what is tested in one process is what
// runs in six.
package services

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services/process"
)

// flushTimeout bounds how long the last spans of a stopping process may take on their way out.
const flushTimeout = 5 * time.Second

// Env is what a process gets from main, or from a test.
type Env struct {
	// Logger makes the logger of a service.
	Logger func(service string) *slog.Logger
	// Telemetry makes the tracer provider of a service, and what sends its last spans. See [process.Telemetry].
	Telemetry func(ctx context.Context, service string) (trace.TracerProvider, func(context.Context) error, error)
	// Version is the program's version.
	Version string
	// Hangups gets a value when the configuration is to be loaded again, as by SIGHUP. Nil: never.
	Hangups <-chan struct{}
	// Load loads the configuration again from where it came from, unchecked. It is needed with Hangups.
	Load func() (*Config, error)
}

// NewEnv is the environment of a real process: logs to standard error, telemetry by the OTEL_ variables.
func NewEnv(cfg *Config, version string) Env {
	logger := func(service string) *slog.Logger { return process.NewLogger(os.Stderr, cfg.Log, service) }
	return Env{
		Logger:  logger,
		Version: version,
		Telemetry: func(ctx context.Context, service string) (trace.TracerProvider, func(context.Context) error, error) {
			return process.Telemetry(ctx, process.TelemetryOptions{
				Service: service, Version: version, Logger: logger(service), Getenv: os.Getenv,
			})
		},
	}
}

// stage is one service on its way to become units of a process.
type stage struct {
	env      Env
	cfg      *Config
	loaded   Config // cfg as it was loaded
	name     string
	log      *slog.Logger
	provider trace.TracerProvider
	// dial connects to a spool.
	dial func(target string) (*grpc.ClientConn, error)
	// dialPeer connects to a server that is no spool and has the word in its certificate.
	dialPeer func(target, word string) (*grpc.ClientConn, error)
	// fit changes a configuration that was loaded again as the first one was changed.
	fit func(*Config) error
	// listening is told where the gateway listens, and by which listeners.
	listening func([]gateway.Listener, []net.Addr) error
	// units are what runs, in the order of starting.
	units []process.Unit
	// undo gives back what was opened, where the process is not started after all.
	undo []func() error
}

// newStage begins a service: its telemetry is the first unit, so that it is the last to stop.
func newStage(ctx context.Context, env Env, cfg *Config, name string) (*stage, error) {
	provider, flush, err := env.Telemetry(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("setting up telemetry of %s: %w", name, err)
	}
	s := &stage{
		env: env, cfg: cfg, loaded: *cfg, name: name, log: env.Logger(name), provider: provider,
		fit:       func(*Config) error { return nil },
		listening: func([]gateway.Listener, []net.Addr) error { return nil },
	}
	s.own(name+" telemetry", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := flush(ctx); err != nil {
			s.log.WarnContext(ctx, "sending the last spans failed", "error", err)
		}
		return nil
	})
	return s, nil
}

// addDebug adds the process's profiles, where they are wanted.
func (s *stage) addDebug(ctx context.Context) error {
	if s.cfg.Debug.Listen == "" {
		return nil
	}
	unit, err := process.Debug(ctx, s.cfg.Debug)
	if err != nil {
		return err
	}
	s.add(unit)
	return nil
}

func (s *stage) add(unit process.Unit) { s.units = append(s.units, unit) }

// own closes something that is open already when the process stops, or is not started after all.
func (s *stage) own(name string, closeIt func() error) {
	s.undo = append(s.undo, closeIt)
	s.add(process.Unit{Name: name, StopTimeout: flushTimeout + time.Second, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return closeIt()
	}})
}

// giveBack closes what was opened, in reverse.
func (s *stage) giveBack() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		_ = s.undo[i]()
	}
}

// connect dials the configured spool and closes the connection when the process stops.
func (s *stage) connect() (*grpc.ClientConn, error) {
	conn, err := s.dial(s.cfg.Connect.Spool)
	if err != nil {
		return nil, fmt.Errorf("connect.spool: %w", err)
	}
	s.own(s.name+" connection", conn.Close)
	return conn, nil
}

// separate makes a service that is a process of its own: mutual TLS where configured, and a health server.
func separate(ctx context.Context, env Env, cfg *Config, name string) (*stage, error) {
	s, err := newStage(ctx, env, cfg, name)
	if err != nil {
		return nil, err
	}
	if err := s.addDebug(ctx); err != nil {
		return nil, err
	}
	serverTLS, clientTLS, err := process.LoadTLS(cfg.TLS, name)
	if err != nil {
		return nil, err
	}
	s.dial = func(target string) (*grpc.ClientConn, error) {
		return process.Dial(target, process.DialOptions{TLS: clientTLS, TracerProvider: s.provider})
	}
	s.dialPeer = func(target, word string) (*grpc.ClientConn, error) {
		opts := process.DialOptions{TracerProvider: s.provider}
		if clientTLS != nil {
			opts.TLS = clientTLS.Clone()
			opts.TLS.ServerName = word
		}
		return process.Dial(target, opts)
	}
	if cfg.Health.Listen == "" || name == process.Spool {
		return s, nil
	}
	server, err := process.NewServer(process.ServerOptions{TLS: serverTLS, Trusted: serverTLS == nil, Logger: s.log})
	if err != nil {
		return nil, err
	}
	lis, err := process.Listen(ctx, "health.listen", cfg.Health.Listen)
	if err != nil {
		return nil, err
	}
	s.add(serveGRPC(name+" health", server, lis))
	return s, nil
}

func serveGRPC(name string, server *process.Server, lis net.Listener) process.Unit {
	const grace = 3 * time.Second
	return process.Unit{Name: name, StopTimeout: 2 * grace, Run: func(ctx context.Context) error {
		return process.ServeGRPC(ctx, server, lis, grace)
	}}
}

// Run runs one service as a process of its own until ctx ends. The service is the word that is also its folder,
// subcommand and service.name.
func Run(ctx context.Context, env Env, cfg *Config, service string) error {
	wire, known := map[string]func(context.Context, *stage) error{
		process.Gateway: wireGateway,
		process.Spool:   wireSpool,
		process.Parser:  wireParser,
		process.Filter:  wireFilter,
		process.Deliver: wireDeliver,
		process.Console: func(ctx context.Context, s *stage) error { _, err := wireConsole(ctx, s); return err },
	}[service]
	if !known {
		return process.Usage("there is no service %q", service)
	}
	s, err := separate(ctx, env, cfg, service)
	if err != nil {
		return err
	}
	if err := wire(ctx, s); err != nil {
		return err
	}
	if env.Hangups != nil && service != process.Gateway {
		s.add(process.Unit{Name: "hangups", Run: s.ignoreHangups})
	}
	s.log.InfoContext(ctx, "starting", "version", env.Version)
	err = process.Run(ctx, s.log, s.units...)
	s.log.InfoContext(context.WithoutCancel(ctx), "stopped")
	return err
}
