package services

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/services/jsonapi"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/postgres"
	"github.com/rohrpost/rohrpost/spool/spooladmin"
	"github.com/rohrpost/rohrpost/spool/spoolsend"
)

// applicationServices returns what registers the services for applications and operators at a server.
func applicationServices(s *stage, store *postgres.Store, engine *spool.Spool) func(grpc.ServiceRegistrar) {
	admin := spooladmin.New(store, engine.Live, spooladmin.Options{
		Logger: s.log, Commander: store, Suspender: store, Caller: process.Caller,
	})
	send := spoolsend.New(engine, store, spoolsend.Options{
		Hostname: s.cfg.Gateway.Hostname, Caller: process.Caller, Logger: s.log, TracerProvider: s.provider,
	})
	return func(server grpc.ServiceRegistrar) {
		adminv1.RegisterAdminServiceServer(server, admin)
		sendv1.RegisterSendServiceServer(server, send)
	}
}

// web serves the services for applications as JSON over HTTP. Behind it stands a gRPC server of its own, without a
// listener: it has the same interceptors as the one that listens, and nothing for gateways and workers.
type web struct {
	server  *process.Server
	handler http.Handler
	lis     net.Listener
	opts    jsonapi.ServeOptions
}

// newWeb opens the listener that is configured; nil where none is.
func newWeb(ctx context.Context, s *stage, opts process.ServerOptions) (*web, error) {
	cfg := s.cfg.Spool
	if cfg.HTTPListen == "" {
		return nil, nil //nolint:nilnil // no listener and no error: none is wanted
	}
	opts.Reflection = false
	server, err := process.NewServer(opts)
	if err != nil {
		return nil, err
	}
	handler, err := jsonapi.New(server.Server, jsonapi.Options{
		Services: []string{adminv1.AdminService_ServiceDesc.ServiceName, sendv1.SendService_ServiceDesc.ServiceName},
		Hosts:    cfg.HTTPHosts, AnyHost: opts.TLS != nil,
	})
	if err != nil {
		return nil, err
	}
	lis, err := process.Listen(ctx, "spool.http_listen", cfg.HTTPListen)
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, lis.Close)
	if opts.TLS == nil && !process.Loopback(lis.Addr().String()) {
		s.log.WarnContext(ctx, "spool.http_listen is open to the network without tls: what is sent there can be read on the way")
	}
	return &web{server: server, handler: handler, lis: lis, opts: jsonapi.ServeOptions{TLS: opts.TLS, Logger: s.log}}, nil
}

// run serves until ctx ends.
func (w *web) run(ctx context.Context) error {
	defer w.server.Stop()
	return jsonapi.Serve(ctx, w.handler, w.lis, w.opts)
}
