package spoolbench

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/rohrpost/rohrpost/gateway"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// A message of the measurements: 4 KiB, for one recipient at one of many domains.
const (
	messageSize = 4 << 10
	domains     = 100
	// patience is how long a submission may take: far longer than any does.
	patience = time.Minute
)

var kind = mail.Sized(messageSize)

// message makes a message that no other is like.
func message() (*gateway.Submission, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	to := fmt.Sprintf("user@d%d.example", id[15]%domains)
	received := "from client.example ([127.0.0.1])\r\n\tby mx.b.example (Rohrpost) with ESMTP\r\n\tid " + id.String()
	return &gateway.Submission{
		ID:       id,
		Envelope: &mailv1.Envelope{Sender: "ann@a.example", Recipients: []*mailv1.Recipient{{Address: to}}},
		Edits: []*mailv1.Edit{{Kind: &mailv1.Edit_Prepend{
			Prepend: &mailv1.HeaderField{Name: "Received", Value: received},
		}}},
		Content:  kind.Make(nil, id.String(), "ann@a.example", to).Bytes(),
		Deadline: patience,
	}, nil
}

// accepted is what came of submitting for a time.
type accepted struct {
	rate    float64 // a second
	count   int64   // the warm-up included
	latency latency.Summary
}

// submitFor submits from so many callers at once, each one message after another, through a warm-up and then for a time in
// which it counts. before is called for each message and may wait; it may be nil.
func (r *rig) submitFor(ctx context.Context, callers int, warm, d time.Duration, before func(context.Context) error) (accepted, error) {
	client, done, err := r.gateway(ctx)
	if err != nil {
		return accepted{}, err
	}
	defer done()
	var took latency.Recorder
	var all, counted atomic.Int64
	begin := time.Now().Add(warm)
	end := begin.Add(d)
	group, ctx := errgroup.WithContext(ctx)
	for i := range callers {
		group.Go(func() error {
			for time.Now().Before(end) {
				if before != nil {
					if err := before(ctx); err != nil {
						return err
					}
				}
				sub, err := message()
				if err != nil {
					return err
				}
				sent := time.Now()
				if _, err := client.Submit(ctx, sub); err != nil {
					return fmt.Errorf("submitting: %w", err)
				}
				now := time.Now()
				all.Add(1)
				if now.After(begin) && now.Before(end) {
					counted.Add(1)
					took.Record(i, now.Sub(sent))
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return accepted{}, err
	}
	return accepted{rate: float64(counted.Load()) / d.Seconds(), count: all.Load(), latency: took.Summary()}, nil
}

// submitInto measures submission with nobody behind it, under a key.
func (r *rig) submitInto(ctx context.Context, run *report.Run, key string) error {
	var got accepted
	counting, err := r.transactions(ctx)
	if err != nil {
		return err
	}
	usage, err := r.watched(run, func() (err error) {
		got, err = r.submitFor(ctx, r.o.Outstanding, r.o.warm(), r.o.Measure, nil)
		return err
	})
	if err != nil {
		return err
	}
	if got.rate == 0 {
		return errShort("messages accepted:", got.count)
	}
	rows, err := counting.batch(ctx)
	if err != nil {
		return err
	}
	run.Set(key, got.rate)
	run.Set(key+"_batch", rows)
	setMS(run, key+"_latency", got.latency.P50, got.latency.P99)
	cost(run, key, usage, got.count)
	return nil
}

// transactions counts messages by their transactions, from the next one on.
type transactions struct {
	url  string
	from string // a transaction id
}

func (r *rig) transactions(ctx context.Context) (t transactions, err error) {
	t.url = r.Database()
	err = one(ctx, t.url, &t.from, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
	return t, err
}

// batch is the mean number of messages in a transaction that had any.
func (t transactions) batch(ctx context.Context) (mean float64, err error) {
	err = one(ctx, t.url, &mean, "SELECT count(*)::float8 / greatest(count(DISTINCT tx), 1) FROM message WHERE tx >= $1::text::xid8", t.from)
	return mean, err
}

// submit measures acceptance: of a lone submitter beside the commit of a single row, and of many at once beside a plain loop of
// COPY with as many rows in a transaction as the spool had.
func (o *Options) submit(ctx context.Context, place bench.Place, run *report.Run) error {
	return o.with(ctx, place, nil, func(r *rig) error {
		lone, err := r.submitFor(ctx, 1, o.warm(), o.Measure, nil)
		if err != nil {
			return err
		}
		if lone.rate == 0 {
			return errShort("messages accepted:", lone.count)
		}
		if err := r.submitInto(ctx, run, "submit"); err != nil {
			return err
		}
		if err := r.Halt(ctx); err != nil {
			return err
		}
		return r.floors(ctx, run, lone.latency)
	})
}

// floors measures what Postgres can do at most with the spool's rows, and how far the spool is from that.
func (r *rig) floors(ctx context.Context, run *report.Run, lone latency.Summary) error {
	floor, err := bench.OpenFloor(ctx, r.Database())
	if err != nil {
		return err
	}
	defer floor.Close(context.WithoutCancel(ctx))
	commit, err := floor.Commits(ctx, r.o.Measure/2)
	if err != nil {
		return err
	}
	rows := max(1, int(math.Round(run.Values["submit_batch"])))
	copied, err := floor.Copy(ctx, rows, r.o.Measure)
	if err != nil {
		return err
	}
	run.Set("copy", copied)
	run.Set("submit_of_copy", run.Values["submit"]/copied)
	setMS(run, "lone", lone.P50, lone.P99)
	setMS(run, "commit", commit.P50, commit.P99)
	setMS(run, "lone_of_commit", lone.P50/commit.P50, lone.P99/commit.P99)
	return nil
}

// commits measures with so many transactions in flight.
func (o *Options) commits(n int) func(context.Context, bench.Place, *report.Run) error {
	return func(ctx context.Context, place bench.Place, run *report.Run) error {
		return o.with(ctx, place, inFlight(n), func(r *rig) error {
			if err := r.livesInto(ctx, run, "life"); err != nil {
				return err
			}
			return r.submitInto(ctx, run, "submit")
		})
	}
}
