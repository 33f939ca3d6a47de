package cli

import (
	"context"
	"fmt"
	"strings"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/rohrpost/rohrpost/services/process"
)

// Health is the command `health`: exit code 0 where the process serves, for health checks of containers.
type Health struct {
	Connection
	As    string `name:"as" default:"" placeholder:"SERVICE" help:"With --tls: the service that is asked, whose certificate is shown too (gateway, spool, ...)."`
	Quiet bool   `short:"q" help:"Print nothing where all is well."`
}

// Run asks the health service. The token is not needed for it.
func (c *Health) Run(ctx context.Context, std *IO) error {
	options := process.DialOptions{}
	if c.TLS != "" {
		own, server := process.CLI, process.Spool
		if c.As != "" {
			own, server = c.As, c.As
		}
		_, client, err := process.LoadTLS(process.TLSConfig{Dir: c.TLS}, own)
		if err != nil {
			return err
		}
		client.ServerName = server
		options.TLS = client
	}
	conn, err := process.Dial(c.address(), options)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost by it
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return c.explain(err)
	}
	if response.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s says %s", c.address(), strings.ToLower(response.GetStatus().String()))
	}
	if !c.Quiet {
		_, err = fmt.Fprintf(std.Out, "%s is serving\n", c.address())
	}
	return err
}
