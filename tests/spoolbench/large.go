package spoolbench

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// large submits large messages at once, each on a stream of its own, and has each read to its end at each of the three hops.
func (o *Options) large(ctx context.Context, place bench.Place, run *report.Run) error {
	return o.with(ctx, place, nil, func(r *rig) error {
		begun := time.Now()
		usage, err := r.watched(run, func() error { return r.largeLives(ctx, run) })
		if err != nil {
			return err
		}
		octets := float64(o.Large) * float64(o.LargeSize)
		run.Set("whole", octets/1e6/time.Since(begun).Seconds())
		run.Set("pss", mib(usage.Groups[spoolGroup].PeakPSS))
		run.Set("pss_postgres", mib(usage.Groups[postgresGroup].PeakPSS))
		return nil
	})
}

func (r *rig) largeLives(ctx context.Context, run *report.Run) error {
	var read atomic.Int64
	w, err := r.work(ctx, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
		content, err := job.Open(ctx, 0)
		if err != nil {
			return nil, err
		}
		defer content.Close()
		n, err := io.Copy(io.Discard, content)
		read.Add(n)
		return nil, err
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	err = r.submitLarge(ctx)
	run.Set("in", float64(r.o.Large)*float64(r.o.LargeSize)/1e6/time.Since(begun).Seconds())
	if err == nil {
		err = reached(ctx, r.Database(), outcomes, int64(r.o.Large))
	}
	if stopErr := w.stop(); err == nil {
		err = stopErr
	}
	if want := int64(len(stages) * r.o.Large * r.o.LargeSize); err == nil && read.Load() < want {
		err = fmt.Errorf("workers read %d octets of %d", read.Load(), want)
	}
	return err
}

func (r *rig) submitLarge(ctx context.Context) error {
	client, done, err := r.gateway(ctx)
	if err != nil {
		return err
	}
	defer done()
	group, ctx := errgroup.WithContext(ctx)
	for range r.o.Large {
		group.Go(func() error {
			sub, err := message()
			if err != nil {
				return err
			}
			sub.Stream, sub.Content, sub.SizeHint, sub.Deadline = &lines{left: r.o.LargeSize}, nil, int64(r.o.LargeSize), 5*patience
			if _, err := client.Submit(ctx, sub); err != nil {
				return fmt.Errorf("submitting: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// lines is content of so many octets, made as it is read.
type lines struct{ left, at int }

const line = "The quick brown fox jumps over the lazy dog, again and again.\r\n"

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && l.left > 0 {
		m := copy(p[n:min(len(p), n+l.left)], line[l.at:])
		n, l.left, l.at = n+m, l.left-m, (l.at+m)%len(line)
	}
	return n, nil
}
