//go:build linux

// Package chaos sends mail through a pipeline of many processes while everything around it breaks by a schedule, heals
// all of it, and judges what became of the mail. docs/chaos.md tells how to run it and how to read what it says.
package chaos

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// Options say what to run.
type Options struct {
	Binary   string        // the program under test
	Dir      string        // an empty folder for logs and disks
	Seed     uint64        // of schedule and mail
	Duration time.Duration // how long traffic and faults go on; the judging comes after it
	Sessions int           // of clients
	Repeat   string        // the command that makes this run again, for the report
	Out      io.Writer     // where progress is told
}

// Limits of what comes after the faults.
const (
	upPatience    = 90 * time.Second // until mail is taken
	drainPatience = 60 * time.Second // in which not one more mail ends, though there are some
	tracePatience = 30 * time.Second // until the last spans have come
	mailPatience  = 2 * time.Minute  // for judging the mail, also where all that comes before took too long
)

// Overtime is how much longer than its faults a run may take: start, judging and all; after that it is broken off and what
// is known is told.
const Overtime = 6 * time.Minute

// diskPerMinute is what an idle machine writes in a minute, and more, in MiB.
const diskPerMinute = 400

// nodes are the services: two of each, so that one can take over from the other.
var nodes = []string{
	"spool-1", "spool-2", "parser-1", "parser-2", "filter-1", "filter-2", "deliver-1", "deliver-2", "gateway-1", "gateway-2",
}

// plan is what there is to break.
func plan() schedule.Plan {
	p := schedule.Plan{Nodes: nodes, Disks: []string{cluster.DiskData, cluster.DiskWAL, cluster.DiskMail}}
	for _, spool := range []string{"spool-1", "spool-2"} {
		p.Links = append(p.Links, [2]string{spool, schedule.Postgres})
		for _, node := range nodes {
			if node != "spool-1" && node != "spool-2" {
				p.Links = append(p.Links, [2]string{node, spool})
			}
		}
	}
	for _, node := range []string{"deliver-1", "deliver-2", "gateway-1"} {
		p.Links = append(p.Links, [2]string{node, schedule.Client})
	}
	return p
}

// run is one run under way.
type run struct {
	opts    Options
	begun   time.Time
	cluster *cluster.Cluster
	sink    *sink.Sink
	spans   *rohrtest.Receiver
	traffic *traffic
	report  *Report
	turns   turns
	calm    time.Time                 // from when on nothing is broken any more
	files   map[string]map[string]int // what each service had open before the faults, by kind
	sent    string                    // the clients' ledger
	arrived string                    // the sink's ledger
	stuck   int                       // messages that were given up by drain
}

// Run makes one run. The report, of which there always is one, tells what was found; the error why the run broke off before
// that could be judged.
func Run(ctx context.Context, opts Options) (*Report, error) {
	r := &run{opts: opts, begun: time.Now(), report: &Report{
		Seed: opts.Seed, Duration: opts.Duration, Repeat: opts.Repeat, Faults: schedule.Make(opts.Seed, opts.Duration, plan()),
	}}
	err := r.all(ctx)
	if ctx.Err() != nil { // whatever seems to be wrong then comes of that
		return r.report, fmt.Errorf("the run was ended before its time: %w", context.Cause(ctx))
	}
	return r.report, err
}

// all is the run from its start to its judgement.
func (r *run) all(ctx context.Context) error {
	limit := r.opts.Duration + Overtime - mailPatience
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run is not over %s after its start", limit))
	defer cancel()
	stop, err := r.start(ctx)
	defer stop()
	if err != nil {
		return err
	}
	r.breakThings(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.judge(ctx)
	return nil
}

// say tells how far the run is.
func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.opts.Out, "%6.1fs  %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}

// start starts everything and waits until mail is taken. The returned function stops it, whatever came of it.
func (r *run) start(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for i := range stops {
			stops[len(stops)-1-i]()
		}
	}
	r.say("starting PostgreSQL and %d services", len(nodes))
	sinkAddress := cluster.Host + ":2600"
	traces := cluster.Host + ":4317"
	r.cluster, err = cluster.Start(ctx, cluster.Options{
		Binary: r.opts.Binary, Dir: r.opts.Dir, Nodes: nodes, DataMiB: diskPerMinute * (2 + int(r.opts.Duration.Minutes())),
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces, "OTEL_BSP_SCHEDULE_DELAY=200"},
		Configure: func(cfg *services.Config) {
			cfg.Gateway.TrustTraceparent = []netip.Prefix{}
			cfg.Deliver.Routes = []deliver.Route{
				{
					Match: []pattern.Pattern{pattern.MustParse("box.example")}, Via: deliver.ViaMaildir,
					Maildir: deliver.MaildirRoute{Path: filepath.Join(r.opts.Dir, cluster.DiskMail, "boxes")},
				},
				{Match: []pattern.Pattern{pattern.MustParse("*")}, Via: deliver.ViaSMTP, SMTP: deliver.SMTPRoute{Address: sinkAddress}},
			}
		},
	})
	if r.cluster != nil {
		stops = append(stops, r.cluster.Close)
	}
	if err != nil {
		return stop, err
	}
	var stopSpans func()
	if r.spans, stopSpans, err = rohrtest.ReceiveSpans(ctx, traces); err != nil {
		return stop, err
	}
	stops = append(stops, stopSpans)
	if err := r.startSink(ctx, sinkAddress); err != nil {
		return stop, err
	}
	stops = append(stops, func() { _ = r.sink.Close() }) // what it wrote is read before
	var gateways []string
	for _, node := range []string{"gateway-1", "gateway-2"} {
		gateways = append(gateways, r.cluster.Address(node)+":2525")
	}
	r.sent = filepath.Join(r.opts.Dir, "sent.jsonl")
	book, err := ledger.Open(r.sent)
	if err != nil {
		return stop, err
	}
	stops = append(stops, func() { _ = book.Close() }) // as above
	r.traffic = &traffic{run: fmt.Sprintf("chaos%d", r.opts.Seed), gateways: gateways, book: book}
	if err := r.waitUp(ctx); err != nil {
		return stop, err
	}
	r.files, err = r.openFiles()
	return stop, err
}

func (r *run) startSink(ctx context.Context, address string) error {
	r.arrived = filepath.Join(r.opts.Dir, "arrived.jsonl")
	book, err := ledger.Open(r.arrived)
	if err != nil {
		return err
	}
	script, err := sink.NewScript(misbehaviour...)
	if err != nil {
		return err
	}
	r.sink, err = sink.Start(ctx, sink.Config{SMTP: address, Script: script, Ledger: book})
	return err
}

// misbehaviour is what the next hop does now and then. Half a second here and there keeps deliveries under way when
// something breaks. Now and then it takes nearly as long as deliver waits: such an attempt is still under way when the
// worker that was given the one before comes back with its result.
var misbehaviour = []sink.Rule{
	{At: sink.Rcpt, Recipient: refusedBox, Reply: "550 5.1.1 No such mailbox"},
	{At: sink.Connect, Every: 90, Reply: "421 4.3.2 Busy", Then: sink.Close},
	{At: sink.Rcpt, Every: 20, Reply: "450 4.2.1 Try again"},
	{At: sink.Content, Every: 110, Octets: 500, Then: sink.Reset},
	{At: sink.Dot, Every: 15, Reply: "452 4.3.1 No space"},
	{At: sink.Dot, Every: 130, Then: sink.Reset},
	{At: sink.Dot, Every: 210, Then: sink.Silence},
	{At: sink.Dot, Every: 170, Reply: "250 2.0.0 Taken", Then: sink.Reset},
	{At: sink.Dot, Every: 9, Delay: sink.Duration(3 * time.Second)},
	{At: sink.Dot, Every: 4, Delay: sink.Duration(500 * time.Millisecond)},
	{At: sink.Data, Every: 5, Delay: sink.Duration(300 * time.Millisecond)},
}

// waitUp waits until the pipeline takes mail.
func (r *run) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upPatience, fmt.Errorf("the pipeline takes no mail within %s of its start", upPatience))
	defer cancel()
	return r.traffic.some(ctx, 5)
}

// drain waits until every message has ended. Where no more of them do, the judge will say which.
func (r *run) drain(ctx context.Context) error {
	if err := r.cluster.WaitDatabase(ctx); err != nil {
		return err
	}
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	least, since := -1, time.Now()
	for ctx.Err() == nil {
		left, err := judge.Unended(ctx, conn)
		switch {
		case err != nil || left <= r.stuck:
			return err
		case least < 0 || left < least:
			least, since = left, time.Now()
		case time.Since(since) > drainPatience:
			r.say("%d messages do not end: none did for %s", left, drainPatience)
			r.stuck = left
			return nil
		}
		pause(ctx, 300*time.Millisecond)
	}
	return context.Cause(ctx)
}
