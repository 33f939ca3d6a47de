package gatewaybench

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// The flood: so many bombs a second, each of which keeps a parser for some 20 ms, that two cores are not enough for them.
const (
	bombRate = 90
	bombHead = 500 * time.Millisecond // how long the flood has been on when the probe begins
)

// bomb takes a parser longer than most of its size, and is small enough to go with its job: an address of quoted parentheses.
func bomb() []byte {
	const line, lines = 500, 120
	return []byte("Subject: x\r\nTo: <" + strings.Repeat(strings.Repeat(`\(`, line)+"\r\n ", lines) + "@b>\r\n\r\nbody\r\n")
}

// bombs measures how long the gateway's replies take, with nothing else to do and while bombs come in, with the whole pipeline
// behind it: as processes of their own, the parser's of lower priority by its configuration, or together as in `rohrpost up`.
func (o *Options) bombs(together bool) func(context.Context, bench.Place, *report.Run) error {
	return func(ctx context.Context, place bench.Place, run *report.Run) (err error) {
		pg, err := stack.Postgres(ctx, place.Base)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pg.Stop(context.WithoutCancel(ctx))) }()
		s, err := stack.Start(ctx, pg, stack.Options{Rohrpost: o.Rohrpost, Rohrload: o.Rohrload, Dir: place.Dir, Together: together, Configure: o.connect})
		if err != nil {
			return err
		}
		defer func() {
			_, stopErr := s.Stop(context.WithoutCancel(ctx))
			err = errors.Join(err, stopErr)
		}()
		if err := o.replies(ctx, s, run, "quiet"); err != nil {
			return err
		}
		if err := o.flooded(ctx, s, run); err != nil {
			return err
		}
		for _, p := range []string{"_p50", "_p99"} {
			run.Set("flooded_of_quiet"+p, run.Values["flooded"+p]/run.Values["quiet"+p])
		}
		return nil
	}
}

// replies measures the replies and notes them under a key.
func (o *Options) replies(ctx context.Context, s *stack.Stack, run *report.Run, key string) error {
	usage, err := machine.Around(s.Groups(), loadGroup, func() error {
		took, err := probe(ctx, s.SMTP, o.Measure)
		run.Set(key+"_p50", took.P50)
		run.Set(key+"_p99", took.P99)
		return err
	})
	if err != nil {
		return err
	}
	run.Watched(usage)
	run.Set(key+"_busy", 100*usage.Busy)
	return nil
}

// flooded measures the replies while bombs come.
func (o *Options) flooded(ctx context.Context, s *stack.Stack, run *report.Run) error {
	load := begin(ctx, gen.Config{
		Target: s.SMTP, Sessions: 1000, Rate: bombRate, Duration: time.Hour, Mails: []*mail.Mail{mail.Wrap(bomb())},
	})
	var err error
	select {
	case <-time.After(bombHead):
		err = o.replies(ctx, s, run, "flooded")
	case <-load.done:
	}
	res, loadErr := load.stop()
	if err = errors.Join(err, loadErr); err != nil {
		return err
	}
	run.Set("bombs", float64(res.Accepted)/res.Last.Sub(res.Begin).Seconds())
	return nil
}
