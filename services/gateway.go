package services

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/gateway/directoryrpc"
	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	"github.com/rohrpost/rohrpost/services/process"
)

// wireGateway makes the SMTP edge a client of the spool.
func wireGateway(ctx context.Context, s *stage) error {
	process.SnugGC()
	conn, err := s.connect()
	if err != nil {
		return err
	}
	client, err := gatewayrpc.New([]grpc.ClientConnInterface{conn}, gatewayrpc.Options{
		Gateway: s.cfg.Gateway.Hostname, Logger: s.log, TracerProvider: s.provider,
		Dial: func(address string) (gatewayrpc.Conn, error) { return s.dial(address) },
	})
	if err != nil {
		return err
	}
	s.add(process.Unit{Name: "gateway submission", Run: client.Run})
	known := &directories{dial: s.dialPeer, conns: map[string]*grpc.ClientConn{}}
	s.own("directory connections", known.close)
	directory, err := known.at(s.cfg.Gateway.Accept.Directory)
	if err != nil {
		return err
	}
	edge, err := gateway.New(s.cfg.Gateway, client, gateway.Options{Logger: s.log, TracerProvider: s.provider, Directory: directory})
	if err != nil {
		return err
	}
	addrs, err := edge.Listen(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w in gateway.listeners (up: --smtp)", err)
	}
	if err != nil {
		return err
	}
	s.add(process.Unit{Name: "gateway", Run: edge.Run, StopTimeout: s.cfg.Gateway.Timeouts.Shutdown + 5*time.Second})
	if s.env.Hangups != nil {
		r := &reloader{stage: s, edge: edge, directories: known}
		s.add(process.Unit{Name: "reload", Run: r.onHangup})
	}
	return s.listening(s.cfg.Gateway.Listeners, addrs)
}

// directoryWord is the word in the certificate of a DirectoryService.
const directoryWord = "directory"

// directories are the connections to all directories that have been configured since the start: sessions of an old
// configuration still ask theirs. It is used by one goroutine at a time.
type directories struct {
	dial  func(target, word string) (*grpc.ClientConn, error)
	conns map[string]*grpc.ClientConn
}

// at returns a client of a directory, nil where target is empty.
func (d *directories) at(target string) (gateway.Directory, error) {
	if target == "" {
		return nil, nil //nolint:nilnil // nil means none
	}
	conn := d.conns[target]
	if conn == nil {
		var err error
		if conn, err = d.dial(target, directoryWord); err != nil {
			return nil, fmt.Errorf("gateway.accept.directory: %w", err)
		}
		d.conns[target] = conn
	}
	return directoryrpc.New(conn), nil
}

func (d *directories) close() error {
	var errs []error
	for _, conn := range d.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
