package spoolbench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// rig is a running spool with its database.
type rig struct {
	*stack.Stack
	o  *Options
	pg *pgserver.Server
}

// start starts a database server and a spool on an empty database. configure may be nil.
func (o *Options) start(ctx context.Context, place bench.Place, configure func(*services.Config)) (*rig, error) {
	pg, err := stack.Postgres(ctx, place.Base)
	if err != nil {
		return nil, err
	}
	how := stack.Options{Rohrpost: o.Rohrpost, Dir: place.Dir, Alone: true, Configure: func(cfg *services.Config) {
		if !o.TLS {
			cfg.TLS = process.TLSConfig{}
		}
		if configure != nil {
			configure(cfg)
		}
	}}
	s, err := stack.Start(ctx, pg, how)
	if err != nil {
		return nil, errors.Join(err, pg.Stop(context.WithoutCancel(ctx)))
	}
	return &rig{Stack: s, o: o, pg: pg}, nil
}

// close stops everything. It adds what goes wrong to an error.
func (r *rig) close(ctx context.Context, err *error) {
	ctx = context.WithoutCancel(ctx)
	*err = errors.Join(*err, r.Halt(ctx), r.pg.Stop(ctx))
}

// with starts a spool, does something with it, and stops it.
func (o *Options) with(ctx context.Context, place bench.Place, configure func(*services.Config), do func(*rig) error) (err error) {
	r, err := o.start(ctx, place, configure)
	if err != nil {
		return err
	}
	defer r.close(ctx, &err)
	return do(r)
}

// gateway connects as a gateway does until the returned function is called.
func (r *rig) gateway(ctx context.Context) (*gatewayrpc.Client, func(), error) {
	conn, err := r.Dial(process.Gateway)
	if err != nil {
		return nil, nil, err
	}
	client, err := gatewayrpc.New([]grpc.ClientConnInterface{conn}, gatewayrpc.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = client.Run(ctx) }) // it returns nil
	return client, func() { cancel(); running.Wait(); _ = conn.Close() }, nil
}

// watched does something, and tells and notes what it cost.
func (r *rig) watched(run *report.Run, do func() error) (machine.Usage, error) {
	usage, err := machine.Around(r.Groups(), loadGroup, do)
	if err == nil {
		run.Watched(usage)
	}
	return usage, err
}

// The groups of processes that are watched: the spool, its database, and this process.
const (
	spoolGroup    = "server"
	postgresGroup = "postgres"
	loadGroup     = "load"
)

// cost notes the CPU of each group for each of n messages, in µs, and the spool's memory in MiB.
func cost(run *report.Run, key string, usage machine.Usage, n int64) {
	for _, name := range []string{spoolGroup, postgresGroup, loadGroup} {
		run.Set(key+"_cpu_"+name, usage.Groups[name].CPU*1e6/float64(max(1, n)))
	}
	run.Set(key+"_pss", mib(usage.Groups[spoolGroup].PeakPSS))
}

// setMS notes the median and the 99th percentile of times, in ms.
func setMS(run *report.Run, key string, p50, p99 float64) {
	run.Set(key+"_p50", p50)
	run.Set(key+"_p99", p99)
}

// mib is octets as MiB.
func mib(octets int64) float64 { return float64(octets) / (1 << 20) }

// errShort says that there was too little to measure.
func errShort(what string, n int64) error {
	return fmt.Errorf("too little to measure: %s %d", what, n)
}
