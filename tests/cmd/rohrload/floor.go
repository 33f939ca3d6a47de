package main

import (
	"context"
	"errors"
	"io"

	"github.com/emersion/go-smtp"
	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// floorCommand is the bare SMTP library with a backend that throws everything away: no gateway on it can be faster.
type floorCommand struct {
	Address string `arg:"" help:"host:port."`
}

// Run serves until it is told to stop.
func (c *floorCommand) Run(ctx context.Context) error {
	if err := gen.RaiseFiles(13_000); err != nil {
		return err
	}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return nothing{}, nil }))
	server.Addr, server.Domain, server.AllowInsecureAuth = c.Address, "floor.test", true
	server.MaxMessageBytes, server.MaxRecipients, server.MaxLineLength = 60_000_000, 1000, 64<<10
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, smtp.ErrServerClosed) {
		return err
	}
	return nil
}

// nothing is a session that takes everything and keeps nothing.
type nothing struct{}

func (nothing) Mail(string, *smtp.MailOptions) error { return nil }
func (nothing) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (nothing) Reset()                               {}
func (nothing) Logout() error                        { return nil }

func (nothing) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// discardCommand is a spool that keeps nothing.
type discardCommand struct {
	Config string `help:"Configuration file of the pipeline, for address and certificates."`
}

// Run serves until it is told to stop.
func (c *discardCommand) Run(ctx context.Context) error {
	cfg := services.DefaultConfig()
	if err := process.Load(c.Config, nil, &cfg); err != nil {
		return err
	}
	server, _, err := process.LoadTLS(cfg.TLS, process.Spool)
	if err != nil {
		return err
	}
	s, err := process.NewServer(process.ServerOptions{TLS: server, Trusted: server == nil})
	if err != nil {
		return err
	}
	spoolv1.RegisterSpoolServiceServer(s, stack.Discarder{})
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
