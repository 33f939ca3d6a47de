package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

type sinkCommand struct {
	SMTP        string        `name:"smtp" placeholder:"ADDR" help:"Take SMTP at host:port (default 127.0.0.1:2600 where nothing else is given)."`
	LMTP        string        `name:"lmtp" placeholder:"ADDR" help:"Take LMTP at host:port."`
	HTTP        string        `name:"http" placeholder:"ADDR" help:"Take POSTs at host:port."`
	StartTLS    bool          `name:"starttls" help:"Offer STARTTLS, with a certificate made up."`
	ImplicitTLS bool          `name:"implicit-tls" help:"Speak TLS from the first octet."`
	Script      string        `help:"File of rules (JSON): what is answered, delayed, broken off, and for whom. See docs/performance.md."`
	Ledger      string        `help:"File that gets a line of JSON for each arrival."`
	Keep        string        `help:"Folder for contents as they came; it is made."`
	Duration    time.Duration `short:"d" help:"How long to run; 0 means until a signal."`
	watched
	output
}

// Run takes mail until it is told to stop.
func (c *sinkCommand) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	cfg := sink.Config{SMTP: c.SMTP, LMTP: c.LMTP, HTTP: c.HTTP, StartTLS: c.StartTLS, ImplicitTLS: c.ImplicitTLS, Keep: c.Keep}
	if c.SMTP+c.LMTP+c.HTTP == "" {
		cfg.SMTP = "127.0.0.1:2600"
	}
	if c.Keep != "" {
		if err := os.MkdirAll(c.Keep, 0o755); err != nil { //nolint:gosec // for everybody to read
			return fmt.Errorf("--keep: %w", err)
		}
	}
	if c.Script != "" {
		script, err := sink.ReadScript(c.Script)
		if err != nil {
			return err
		}
		cfg.Script = script
	}
	if c.Ledger != "" {
		if cfg.Ledger, err = ledger.Open(c.Ledger); err != nil {
			return err
		}
		defer func() { err = cmp.Or(cfg.Ledger.Close(), err) }() // whoever can't rely on it has proof of nothing
	}
	if err := gen.RaiseFiles(13_000); err != nil {
		return err
	}
	s, err := sink.Start(ctx, cfg)
	if err != nil {
		return err
	}
	watch, err := c.start("sink")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Fprintln(os.Stderr, strings.Join(strings.Fields(fmt.Sprintf("listening: %s %s %s", s.SMTP(), s.LMTP(), s.HTTP())), " "))
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	c.wait(ctx, s)
	stats := s.Stats()
	usage, err := watch.Stop()
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if !c.Quiet {
		fmt.Fprintf(os.Stderr, "%+v\n", stats)
	}
	return c.finish(report.Run{Number: c.output.Run, Sinks: []*sink.Stats{&stats}, Usage: &usage})
}

// wait shows the progress until ctx ends.
func (c *sinkCommand) wait(ctx context.Context, s *sink.Sink) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if st := s.Stats(); !c.Quiet && st.Arrivals != last {
				fmt.Fprintf(os.Stderr, "%d arrivals (%d/s), %d accepted, %d again, %d faults\n",
					st.Arrivals, st.Arrivals-last, st.Accepted, st.Duplicates, len(st.Faults))
				last = st.Arrivals
			}
		}
	}
}
