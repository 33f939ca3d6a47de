package stack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// Dial connects to the spool as a service does, such as [process.Gateway]. The caller closes the connection.
func (s *Stack) Dial(service string) (*grpc.ClientConn, error) {
	_, client, err := process.LoadTLS(s.tls, service)
	if err != nil {
		return nil, err
	}
	return process.Dial(s.spool, process.DialOptions{TLS: client})
}

// Halt stops the processes and keeps their data for Resume.
func (s *Stack) Halt(ctx context.Context) error {
	_, err := s.Stop(ctx)
	return err
}

// Resume starts the processes again on what was there when they stopped, and sets Startup anew.
func (s *Stack) Resume(ctx context.Context) error {
	if len(s.processes) > 0 {
		return errors.New("stack: it is running")
	}
	return s.run(ctx)
}

// served waits until the spool says by its health service that it takes messages.
func (s *Stack) served(ctx context.Context) error {
	conn, err := s.Dial(process.CLI)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	health := grpc_health_v1.NewHealthClient(conn)
	for {
		resp, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: spoolv1.SpoolService_ServiceDesc.ServiceName})
		if err == nil && resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			return nil
		}
		if ended := exited(s.processes); ended != nil {
			return ended
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the spool does not serve: %w", errors.Join(err, ctx.Err()))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
