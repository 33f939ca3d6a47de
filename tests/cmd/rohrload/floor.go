package main

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// floorCommand is the bare SMTP library.
type floorCommand struct {
	Address string        `arg:"" help:"host:port."`
	Delay   time.Duration `help:"Wait before each reply."`
	Cert    string        `type:"existingfile" help:"Certificate for STARTTLS."`
	Key     string        `type:"existingfile" help:"Its key."`
	Debug   string        `help:"host:port of profiles, on loopback."`
}

// Run serves until it is told to stop.
func (c *floorCommand) Run(ctx context.Context) error {
	if err := gen.RaiseFiles(13_000); err != nil {
		return err
	}
	return peers.Bare(*c).Serve(ctx)
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
	return stack.Discard(ctx, &cfg)
}
