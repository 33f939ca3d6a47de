package gatewaybench

import (
	"context"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// few is how many sessions are open at once where no case needs more.
const few = 50

// kept measures ten messages a connection, without delay.
func (o *Options) kept(ctx context.Context, place bench.Place, run *report.Run) error {
	for _, who := range servers {
		err := o.with(ctx, place, who, how{}, func(e *edge) error {
			cfg := gen.Config{Sessions: few, PerSession: 10, Duration: o.Measure / 2} // warms up
			if _, err := e.load(ctx, run, cfg); err != nil {
				return err
			}
			cfg.Duration = o.Measure
			s, err := e.load(ctx, run, cfg)
			if err != nil {
				return err
			}
			run.Set(who+"_rate", s.Rate())
			run.Set(who+"_cpu", s.cpu()/float64(s.Accepted))
			return nil
		})
		if err != nil {
			return err
		}
	}
	run.Set("cpu_of_library", run.Values[ours+"_cpu"]/run.Values[library+"_cpu"])
	return nil
}

// The large messages.
const (
	largeSize     = 1_000_000 // octets
	largeSessions = 8
)

// large measures large messages, through the gateway for twice as long: its memory must not grow with what has passed.
func (o *Options) large(ctx context.Context, place bench.Place, run *report.Run) error {
	cfg := gen.Config{Sessions: largeSessions, Duration: o.Measure, Mails: []*mail.Mail{mail.Sized(largeSize)}}
	for _, who := range servers {
		err := o.with(ctx, place, who, how{}, func(e *edge) error {
			s, err := e.load(ctx, run, cfg)
			if err != nil {
				return err
			}
			run.Set(who+"_mb", float64(s.Octets)/1e6/s.Groups[serverGroup].CPU)
			run.Set(who+"_rate", s.Rate()*largeSize/1e6)
			run.Set(who+"_pss", s.pss()/(1<<20))
			if who == library {
				return nil
			}
			later, err := e.load(ctx, run, cfg)
			if err != nil {
				return err
			}
			run.Set(who+"_later_pss", later.pss()/(1<<20))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
