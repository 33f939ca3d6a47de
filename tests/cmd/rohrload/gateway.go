package main

import (
	"context"
	"io"
	"time"

	"github.com/rohrpost/rohrpost/tests/gatewaybench"
)

type gatewayCommand struct {
	partFlags
	Measure  time.Duration `default:"4s" help:"How long a rate is measured."`
	Sessions int           `default:"10000" help:"Sessions at once in the study's workload."`
}

// Run measures the gateway.
func (c *gatewayCommand) Run(ctx context.Context) error {
	base, err := c.options("The gateway")
	if err != nil {
		return err
	}
	o := gatewaybench.Options{Options: base, TLS: c.TLS, Measure: c.Measure, Sessions: c.Sessions}
	r, err := gatewaybench.Run(ctx, o)
	return c.keep("gateway", r, err, func(w io.Writer) error { return o.Markdown(w, r) })
}
