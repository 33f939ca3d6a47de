package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/epoch"
	"github.com/rohrpost/rohrpost/spool/fault"
	"github.com/rohrpost/rohrpost/spool/postgres"
	"github.com/rohrpost/rohrpost/spool/spoolrpc"
)

// readyPoll is how often the health of the spool is looked at.
const readyPoll = 20 * time.Millisecond

// wireSpool makes the spool a gRPC server for gateways, workers and operators.
func wireSpool(ctx context.Context, s *stage) error {
	process.SnugGC()
	serverTLS, _, err := process.LoadTLS(s.cfg.TLS, process.Spool)
	if err != nil {
		return err
	}
	opts := process.ServerOptions{
		TLS: serverTLS, Trusted: serverTLS == nil, Logger: s.log, TracerProvider: s.provider,
	}
	server, err := process.NewServer(opts)
	if err != nil {
		return err
	}
	lis, err := process.Listen(ctx, "spool.listen", s.cfg.Spool.Listen)
	if err != nil {
		return err
	}
	if serverTLS == nil && !process.Loopback(lis.Addr().String()) {
		s.log.WarnContext(ctx, "spool.listen is open to the network and tls is not set: everybody who reaches it is trusted")
	}
	web, err := newWeb(ctx, s, opts)
	if err != nil {
		return err
	}
	_, err = serveSpool(ctx, s, server, lis, web)
	return err
}

// serveSpool adds the store, the server on a listener, its sibling on HTTP unless that is nil, and the engine. The returned
// channel is closed once the spool owns its incarnation and takes messages.
//
// The server starts before the engine and stops after it: a spool that drains needs its streams for the last results.
func serveSpool(ctx context.Context, s *stage, server *process.Server, lis net.Listener, web *web) (<-chan struct{}, error) {
	name, err := s.cfg.spoolName()
	if err != nil {
		return nil, err
	}
	faults, err := fault.Parse(s.cfg.Spool.Faults, s.log)
	if err != nil {
		return nil, fmt.Errorf("spool.faults: %w", err)
	}
	if faults != nil {
		s.log.WarnContext(ctx, "spool.faults is set: this spool will fail on purpose", "faults", s.cfg.Spool.Faults)
	}
	store, err := openStore(ctx, s.log, postgres.Options{
		URL: s.cfg.Spool.Database, Unsafe: s.cfg.Spool.Unsafe, Logger: s.log, TracerProvider: s.provider, Faults: faults,
		Retention: postgres.Retention{
			Content: s.cfg.Spool.KeepContent, Journal: s.cfg.Spool.KeepJournal, Bytes: int64(s.cfg.Spool.KeepSize),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("spool.database: %w", err)
	}
	s.own("spool database", func() error { store.Close(); return nil })
	advertise, err := s.cfg.spoolAdvertise()
	if err != nil {
		return nil, err
	}
	options := spool.Options{Name: name, Address: advertise, Logger: s.log, TracerProvider: s.provider, Faults: faults}
	if s.cfg.Spool.EpochFile != "" {
		options.Epochs = epoch.File(s.cfg.Spool.EpochFile)
	}
	engine, err := spool.New(s.cfg.Spool.Config, store, options)
	if err != nil {
		return nil, err
	}
	rpc := spoolrpc.New(engine, spoolrpc.Options{Logger: s.log})
	spoolv1.RegisterSpoolServiceServer(server, rpc)
	forApplications := applicationServices(s, store, engine)
	forApplications(server)
	s.add(serveGRPC("spool server", server, lis))
	if web != nil {
		forApplications(web.server)
		s.add(process.Unit{Name: "spool http", Run: web.run})
	}

	ready := make(chan struct{})
	s.add(process.Unit{Name: "spool health", Run: func(ctx context.Context) error {
		return watchReady(ctx, engine.Ready, server, ready)
	}})
	s.add(process.Unit{Name: "spool", StopTimeout: s.cfg.Spool.StopTimeout(), Run: func(ctx context.Context) error {
		return runEngine(ctx, engine, rpc)
	}})
	return ready, nil
}

// How long a spool that finds no database waits before it looks again: more each time.
const (
	openWait     = 250 * time.Millisecond
	openWaitMost = 5 * time.Second
)

// openStore opens the database and waits for one that can't be reached: what restarts a machine, or a part of the network,
// does not start things in order. A database that refuses the spool, or is not what it must be, is an error at once.
func openStore(ctx context.Context, log *slog.Logger, opts postgres.Options) (*postgres.Store, error) {
	for wait := openWait; ; wait = min(2*wait, openWaitMost) {
		store, err := postgres.Open(ctx, opts)
		if !errors.Is(err, spool.ErrUnavailable) {
			return store, err
		}
		log.WarnContext(ctx, "The database is not available; the spool starts once it is", "error", err)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// drainNotice is how long a spool that stops still takes what gateways sent before they heard of it. Later it would tell
// their clients 451.
const drainNotice = 200 * time.Millisecond

// runEngine runs the engine. When it stops, gateways and workers are told first.
func runEngine(ctx context.Context, engine *spool.Spool, rpc *spoolrpc.Server) error {
	engineCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- engine.Run(engineCtx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		rpc.Drain()
		time.Sleep(drainNotice)
		cancel()
		return <-done
	}
}

// watchReady keeps the health service at what the engine says and closes first when that is ready for the first time.
func watchReady(ctx context.Context, ready func() bool, server *process.Server, first chan<- struct{}) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	was := false
	server.SetServing(false, spoolv1.SpoolService_ServiceDesc.ServiceName)
	for {
		if now := ready(); now != was {
			was = now
			server.SetServing(now, spoolv1.SpoolService_ServiceDesc.ServiceName)
			if first != nil {
				close(first)
				first = nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
