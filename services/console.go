package services

import (
	"context"
	"net"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/services/console"
	"github.com/rohrpost/rohrpost/services/process"
)

// wireConsole serves the web page. It returns the address it listens at.
func wireConsole(ctx context.Context, s *stage) (net.Addr, error) {
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	lis, err := process.Listen(ctx, "console.listen", s.cfg.Console.Listen)
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, lis.Close)
	handler, err := console.New(s.cfg.Console, adminv1.NewAdminServiceClient(conn), console.Options{Logger: s.log})
	if err != nil {
		return nil, err
	}
	s.add(process.Unit{Name: "console", Run: func(ctx context.Context) error {
		return process.ServeHTTP(ctx, handler, lis)
	}})
	return lis.Addr(), nil
}
