package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

const (
	studyDelay = 10 * time.Millisecond // before each reply
	// ramp is how long sessions are opened. All at once, more would come than the listen queue holds.
	ramp = 2 * time.Second
	// lives is how many sessions each client has in turn, so that all are at it for a while.
	lives = 3
)

// study measures the workload of the study that this project came from: many sessions at once of seven round trips each (greeting,
// EHLO, MAIL, RCPT, DATA, content, QUIT), a delay before each reply. With TLS only the memory is measured.
func (o *Options) study(startTLS bool) func(context.Context, bench.Place, *report.Run) error {
	return func(ctx context.Context, place bench.Place, run *report.Run) error {
		for _, who := range servers {
			if !startTLS {
				if err := o.with(ctx, place, who, how{delay: studyDelay}, func(e *edge) error { return o.crowd(ctx, e, run, who) }); err != nil {
					return err
				}
			}
			h := how{delay: studyDelay, startTLS: startTLS, profiles: true}
			if err := o.with(ctx, place, who, h, func(e *edge) error { return o.hold(ctx, e, run, who, startTLS) }); err != nil {
				return err
			}
		}
		if !startTLS {
			run.Set("cpu_of_library", run.Values[ours+"_cpu"]/run.Values[library+"_cpu"])
		}
		return nil
	}
}

// crowd lets many clients at it at once, each with one session after another.
func (o *Options) crowd(ctx context.Context, e *edge, run *report.Run, who string) error {
	s, err := e.load(ctx, run, gen.Config{Sessions: o.Sessions, PerSession: 1, Messages: int64(lives * o.Sessions), Ramp: ramp})
	if err != nil {
		return err
	}
	run.Set(who+"_astray", s.astray())
	run.Set(who+"_open", float64(s.Peak))
	run.Set(who+"_rate", s.SessionRate())
	run.Set(who+"_cpu", s.cpu()/float64(s.Sessions))
	run.Set(who+"_pss", s.pss()/float64(o.Sessions)/1024)
	return nil
}

// errNotAll means that too few sessions were open at once to tell what one needs.
var errNotAll = errors.New("not all sessions had a message and stayed open")

// hold tells what memory a session needs: each has had a message and waits for its client to go on.
func (o *Options) hold(ctx context.Context, e *edge, run *report.Run, who string, startTLS bool) error {
	cfg := gen.Config{Target: e.SMTP, Sessions: o.Sessions, PerSession: 2, Messages: 2 * int64(o.Sessions), Ramp: ramp, Think: time.Hour}
	if startTLS {
		cfg.TLS = gen.StartTLS
	}
	all := make(chan struct{})
	var once sync.Once
	cfg.Progress = func(p gen.Progress) {
		if n := int64(o.Sessions); p.Accepted+p.Errors >= n && p.Open == n {
			once.Do(func() { close(all) })
		}
	}
	var heap, stacks float64
	load := begin(ctx, cfg)
	usage, err := machine.Around(e.Groups(), loadGroup, func() error {
		select {
		case <-all:
			return nil
		case <-load.done:
			return errNotAll
		}
	})
	if err == nil {
		run.Watched(usage)
		heap, stacks, err = e.inUse(ctx)
	}
	res, loadErr := load.stop()
	if loadErr != nil {
		return loadErr
	}
	if err != nil {
		return fmt.Errorf("%w (%d accepted: %v)", err, res.Accepted, res.Errors)
	}
	each := float64(o.Sessions) * 1024
	run.Set(who+"_held_heap", heap/each)
	run.Set(who+"_held_stacks", stacks/each)
	run.Set(who+"_held", (heap+stacks)/each)
	run.Set(who+"_held_pss", float64(usage.Groups[serverGroup].PeakPSS)/each)
	return nil
}
