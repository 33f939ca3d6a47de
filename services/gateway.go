package services

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/gateway/directoryrpc"
	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	"github.com/rohrpost/rohrpost/services/process"
)

// wireGateway makes the SMTP edge a client of the spool. It returns the addresses it listens at.
func wireGateway(ctx context.Context, s *stage) ([]net.Addr, error) {
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	client, err := gatewayrpc.New([]grpc.ClientConnInterface{conn}, gatewayrpc.Options{
		Gateway: s.cfg.Gateway.Hostname, Logger: s.log, TracerProvider: s.provider,
		Dial: func(address string) (gatewayrpc.Conn, error) { return s.dial(address) },
	})
	if err != nil {
		return nil, err
	}
	s.add(process.Unit{Name: "gateway submission", Run: client.Run})
	directory, err := dialDirectory(s)
	if err != nil {
		return nil, err
	}
	edge, err := gateway.New(s.cfg.Gateway, client, gateway.Options{Logger: s.log, TracerProvider: s.provider, Directory: directory})
	if err != nil {
		return nil, err
	}
	addrs, err := edge.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; stop what listens there, or name another address in gateway.listeners (up: --smtp)", err)
	}
	s.add(process.Unit{Name: "gateway", Run: edge.Run, StopTimeout: s.cfg.Gateway.Timeouts.Shutdown + 5*time.Second})
	return addrs, nil
}

// directoryWord is the word in the certificate of a DirectoryService.
const directoryWord = "directory"

// dialDirectory makes the client of the configured directory, nil where there is none.
func dialDirectory(s *stage) (gateway.Directory, error) {
	target := s.cfg.Gateway.Accept.Directory
	if target == "" {
		return nil, nil //nolint:nilnil // nil means none
	}
	conn, err := s.dialPeer(target, directoryWord)
	if err != nil {
		return nil, fmt.Errorf("gateway.accept.directory: %w", err)
	}
	s.own("directory connection", conn.Close)
	return directoryrpc.New(conn), nil
}
