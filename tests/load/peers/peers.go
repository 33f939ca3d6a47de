// Package peers starts what is measured in turn: this pipeline, other mail servers, and floors below which nothing that does
// the same work can come. A peer is one small file: a [Start].
package peers

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// Options say what a server is to do.
type Options struct {
	Dir  string // for its data, empty; other users can enter it
	Base string // for a database server's folder, which outlives the server, so that it is made once
	Next string // next hop for all mail, host:port; empty keeps what is accepted
}

// Start starts a server with its own configuration, data and ports.
type Start func(ctx context.Context, o Options) (*Server, error)

// Server is a running server.
type Server struct {
	SMTP    string        // host:port
	Startup time.Duration // until the first greeting
	// Groups are the roots of its processes, by group: server, and postgres where it has one.
	Groups func() map[string][]int
	// GC is the CPU time of its garbage collectors so far; nil where there are none.
	GC func() time.Duration
	// Batch is the mean number of messages in a transaction so far; nil where there are none.
	Batch func(ctx context.Context) (float64, error)
	// Versions are those of programs that it consists of, by name.
	Versions map[string]string
	// Stop stops it and tells how long that took.
	Stop func(ctx context.Context) (time.Duration, error)
}

// Rohrpost is this pipeline as separate processes, with changes to how it runs. By itself it has one process of each service;
// without a next hop there is no worker, so that what is accepted stays in the spool.
func Rohrpost(rohrpost, rohrload string, how stack.Options) Start {
	return func(ctx context.Context, o Options) (*Server, error) {
		how.Rohrpost, how.Rohrload, how.Dir, how.Next = rohrpost, rohrload, o.Dir, o.Next
		how.Hold = o.Next == "" && !how.Discard
		s, pg, err := startStack(ctx, o.Base, how)
		if err != nil {
			return nil, err
		}
		server := &Server{SMTP: s.SMTP, Startup: s.Startup, Groups: s.Groups, GC: s.GC, Stop: s.Stop}
		if pg == nil {
			return server, nil
		}
		server.Batch, server.Versions = s.Batch, map[string]string{"PostgreSQL": pg.Version()}
		server.Stop = func(ctx context.Context) (time.Duration, error) {
			took, err := s.Stop(ctx)
			if pgErr := pg.Stop(ctx); err == nil {
				err = pgErr
			}
			return took, err
		}
		return server, nil
	}
}

// startStack starts the pipeline on a database server of its own; with a spool that discards there is none.
func startStack(ctx context.Context, base string, how stack.Options) (*stack.Stack, *pgserver.Server, error) {
	if how.Discard {
		s, err := stack.Start(ctx, nil, how)
		return s, nil, err
	}
	pg, err := stack.Postgres(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	s, err := stack.Start(ctx, pg, how)
	if err != nil {
		_ = pg.Stop(context.WithoutCancel(ctx)) // the first error says more
		return nil, nil, err
	}
	return s, pg, nil
}

// Child is a floor that is one process of rohrload, such as its sink, which listens at an address that it is told.
func Child(rohrload string, args ...string) Start {
	return func(ctx context.Context, _ Options) (*Server, error) {
		address, err := stack.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		p, err := stack.StartProcess(args[0], []string{"GODEBUG=gctrace=1"}, rohrload, append(args, address)...)
		if err != nil {
			return nil, err
		}
		if err := stack.Greeted(ctx, address, p); err != nil {
			_ = p.Stop(ctx) // it did not come up: that says more
			return nil, err
		}
		return &Server{
			SMTP: address, Startup: time.Since(begun), GC: p.GC,
			Groups: func() map[string][]int { return map[string][]int{"server": {p.PID()}} },
			Stop: func(ctx context.Context) (time.Duration, error) {
				begun := time.Now()
				err := p.Stop(ctx)
				return time.Since(begun), err
			},
		}, nil
	}
}
