package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

type genCommand struct {
	Target      string `arg:"" help:"Server, host:port. On loopback or in a private network unless --allow-public."`
	AllowPublic bool   `help:"Allow any target. Load on servers of others is an attack."`
	LMTP        bool   `name:"lmtp" help:"Speak LMTP."`

	Sessions   int           `short:"c" default:"10" help:"Sessions at once; with --rate the most at once."`
	Rate       float64       `help:"Sessions started each second, however long those before take; times count from when each was to start."`
	PerSession int           `default:"0" help:"Messages in each session; 0 keeps sessions, with --rate it is 1."`
	Messages   int64         `short:"n" help:"Messages that count; 0 means until --duration."`
	WarmUp     int64         `help:"Messages before those that count."`
	WarmFor    time.Duration `help:"How long the warm-up lasts at least."`
	Duration   time.Duration `short:"d" help:"How long to send after the warm-up; 0 means until --messages."`
	Grace      time.Duration `default:"10s" help:"Longest wait for sessions under way when the time is over; those still open then are cut off."`
	Ramp       time.Duration `help:"Time over which the first sessions are opened."`
	Think      time.Duration `help:"Wait in each session before each message but its first."`
	SlowShare  float64       `help:"Share of sessions that write content slowly, 0 to 1."`
	SlowRate   int           `default:"1000" help:"How slowly, in octets each second."`
	Timeout    time.Duration `default:"1m" help:"Longest wait for a reply; for that to content ten times that. Without --duration also how long a server is tried with which no session can be opened."`

	Size       []int    `default:"4096" help:"Octets of messages; several are taken in turn."`
	Mix        string   `type:"existingdir" help:"Folder of real mail to send in place of made-up messages."`
	Sender     string   `default:"load@a.example" help:"Sender's address."`
	Domain     []string `default:"b.example" help:"Domains of recipients, taken in turn."`
	Users      int      `default:"100" help:"Recipients in each domain: user0, user1 …"`
	Recipients int      `default:"1" help:"Recipients of each message."`

	TLS        string `name:"tls" enum:",starttls,implicit" default:"" help:"starttls or implicit; any certificate is taken."`
	User       string `help:"User for AUTH PLAIN."`
	Password   string `env:"ROHRLOAD_PASSWORD" help:"Password for AUTH PLAIN."`
	Pipelining bool   `help:"Send MAIL, RCPT and DATA in one write."`
	Chunk      int    `help:"Send content by BDAT in chunks of so many octets."`
	Sources    int    `default:"1" help:"Loopback addresses to connect from; more are taken by themselves where ports run short."`

	Ledger string        `help:"File that gets a line of JSON for each message attempted."`
	Sink   string        `placeholder:"ADDR" help:"Run a sink in this process, at host:port, and wait for what was accepted."`
	Settle time.Duration `default:"1m" help:"With --sink: longest wait after the last message."`
	watched
	output
}

// watched are the processes that belong to the measurement. What others use of the CPU contaminates it.
type watched struct {
	Watch  []string `placeholder:"NAME=PID" help:"Processes of the server to watch, with those that they start; several of a name are one group."`
	Beside []int    `placeholder:"PID" help:"Processes that belong to the measurement and are watched elsewhere, such as the other end on the same machine."`
}

// start starts the watch.
func (w *watched) start(self string) (*machine.Watch, error) {
	groups := map[string][]int{}
	for _, text := range w.Watch {
		name, digits, _ := strings.Cut(text, "=")
		pid, err := strconv.Atoi(digits)
		if err != nil || pid <= 0 || name == "" {
			return nil, fmt.Errorf("--watch %s: give NAME=PID, such as server=4711", text)
		}
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("--watch %s: %w", text, err)
		}
		groups[name] = append(groups[name], pid)
	}
	return machine.Start(groups, self, w.Beside...)
}

// output is where results go.
type output struct {
	Group  string `default:"load" help:"Group of the case, for the report."`
	Name   string `default:"load" help:"Name of the case: results of the same name and run become one in the report."`
	System string `default:"target" help:"What is measured, for the report."`
	Run    int    `default:"1" help:"Number of this run of the case."`
	Out    string `short:"o" help:"File for the result as JSON."`
	Quiet  bool   `short:"q" help:"No progress and no table."`
}

// check tells before anything is measured that there is no place for the result.
func (o *output) check() error {
	if o.Out == "" {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(o.Out))
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is no folder", filepath.Dir(o.Out))
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// Run makes the load.
func (c *genCommand) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if cfg.Ledger != nil {
		defer func() { err = cmp.Or(cfg.Ledger.Close(), err) }() // whoever can't rely on it has proof of nothing
	}
	var s *sink.Sink
	if c.Sink != "" {
		if s, err = sink.Start(ctx, sink.Config{SMTP: c.Sink}); err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // what it had to say is in its statistics
	}
	watch, err := c.start("generator")
	if err != nil {
		return err
	}
	res, err := gen.Run(ctx, cfg)
	if err != nil {
		_, _ = watch.Stop() // there is nothing to tell
		return err
	}
	run := report.Run{Number: c.output.Run, Gens: []*gen.Result{res}}
	if s != nil {
		settle, cancel := context.WithTimeout(ctx, c.Settle)
		run.Hidden, _ = report.Await(settle, s, res, 0) // what is missing then is reported as such
		cancel()
		stats := s.Stats()
		run.Sinks = []*sink.Stats{&stats}
		if stats.Distinct > 0 {
			run.Whole = stats.Last.Sub(res.First).Seconds()
		}
	}
	usage, err := watch.Stop()
	if err != nil {
		return err
	}
	run.Usage = &usage
	err = c.finish(run)
	if err == nil && res.Accepted == 0 {
		err = fmt.Errorf("nothing was accepted: %v", res.Errors)
	}
	return err
}

// config puts the flags together.
func (c *genCommand) config() (cfg gen.Config, err error) {
	cfg = gen.Config{
		Target: c.Target, AllowPublic: c.AllowPublic, LMTP: c.LMTP, Sessions: c.Sessions, Rate: c.Rate, PerSession: c.PerSession,
		Messages: c.Messages, WarmUp: c.WarmUp, WarmFor: c.WarmFor, Duration: c.Duration, Ramp: c.Ramp, Think: c.Think, SlowShare: c.SlowShare,
		SlowRate: c.SlowRate, Timeout: c.Timeout, Grace: c.Grace, Sender: c.Sender, Domains: c.Domain, Users: c.Users, Recipients: c.Recipients,
		TLS: gen.TLS(c.TLS), Username: c.User, Password: c.Password, Pipelining: c.Pipelining, Chunk: c.Chunk, Sources: c.Sources,
	}
	for _, size := range c.Size {
		if size < 0 || size > sink.MaxContent {
			return cfg, fmt.Errorf("--size %d: give 0 to %d octets", size, sink.MaxContent)
		}
		cfg.Mails = append(cfg.Mails, mail.Sized(size))
	}
	if c.Mix != "" {
		if cfg.Mails, err = mail.Folder(c.Mix); err != nil {
			return cfg, err
		}
	}
	if !c.Quiet {
		cfg.Progress = progress
	}
	if c.Ledger != "" {
		cfg.Ledger, err = ledger.Open(c.Ledger)
	}
	return cfg, err
}

func progress(p gen.Progress) {
	total := ""
	if p.Total > 0 {
		total = fmt.Sprintf(" of %d", p.Total)
	}
	fmt.Fprintf(os.Stderr, "%4.0f s: %d sessions, %d%s accepted, %d errors\n", p.Since.Seconds(), p.Open, p.Accepted, total, p.Errors)
}

// finish writes a run as a report of one case.
func (o *output) finish(run report.Run) error {
	r := &report.Report{
		Title: "rohrload", Command: commandLine(), Environment: machine.Describe(),
		Cases: []report.Case{{Group: o.Group, Name: o.Name, System: o.System, Runs: []report.Run{run}}},
	}
	if !o.Quiet {
		if err := r.Table(os.Stdout); err != nil {
			return err
		}
	}
	if err := report.WriteFile(o.Out, r.JSON); err != nil {
		return err
	}
	return loss(r)
}
