//go:build linux

// Command rohrchaos sends mail through a pipeline of many processes while everything around it breaks, heals all of it and
// judges what became of each mail. See docs/chaos.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rohrpost/rohrpost/tests/chaos"
	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/plant"
)

// usualSessions is how many clients send at a time where nobody says otherwise.
const usualSessions = 12

// forced is how much longer than its own limit a run may take to end by itself: services are stopped one after the other.
const forced = 3 * time.Minute

// command is the command line.
type command struct {
	Seed     uint64        `help:"Which faults to make, and when. The same seed makes the same schedule. 0 draws one." default:"0"`
	Duration time.Duration `help:"How long traffic and faults go on. Judging takes about a minute more." default:"2m"`
	Sessions int           `help:"How many clients send at a time." default:"${sessions}"`
	Plant    []string      `help:"Plant a fault in the program under test and see that it is found: ack, token or adopt." enum:"ack,token,adopt" sep:","`
	Race     bool          `help:"Build the program with the race detector."`
	Source   string        `help:"The repository." default:"." type:"existingdir"`
	Keep     bool          `help:"Keep logs also where nothing was found."`

	Binary string `hidden:""`
	Dir    string `hidden:""`
	Want   string `hidden:""`
	Repeat string `hidden:""`
}

func main() {
	var c command
	parser := c.parser()
	_, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	code, err := c.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rohrchaos:", err)
		code = 1
	}
	os.Exit(code)
}

func (c *command) parser() *kong.Kong {
	return kong.Must(c, kong.Name("rohrchaos"), kong.UsageOnError(), kong.Vars{"sessions": fmt.Sprint(usualSessions)},
		kong.Description("Send mail while everything breaks, heal it all, and judge what became of each mail."))
}

// run builds the program and then does what is to be done in namespaces of its own.
func (c *command) run() (int, error) {
	if cluster.Inside() {
		return c.inside()
	}
	if c.Duration <= 0 || c.Sessions < 1 {
		return 1, errors.New("give a --duration, and one client at least by --sessions")
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1e6) //nolint:gosec // a number that is easy to type
	}
	if len(c.Plant) == 0 {
		return c.one("")
	}
	for _, name := range c.Plant {
		if code, err := c.planted(name); code != 0 || err != nil {
			return code, err
		}
	}
	return 0, nil
}

// seeds is how many seeds are tried, one after the other, until a planted fault is found. It takes a rare order of events to
// be hurt by a result that counts for another attempt: one that was put off, whose acknowledgement was lost.
const seeds = 3

// planted makes runs with a fault in the program: it is in order if one of them finds a message that the fault hurt.
func (c *command) planted(name string) (int, error) {
	fault, first := plant.Faults[name], c.Seed
	defer func() { c.Seed = first }()
	fmt.Printf("planting %s: %s\n", name, fault.What)
	c.Want = fault.Rule
	for ; ; c.Seed++ {
		code, err := c.one(name)
		if err != nil {
			return 1, err
		}
		if code == exitWanted {
			fmt.Printf("the planted fault %s was found\n\n", name)
			return 0, nil
		}
		if c.Seed == first+seeds-1 {
			break
		}
		fmt.Printf("the planted fault %s was not found with seed %d\n", name, c.Seed)
	}
	return 1, fmt.Errorf("the planted fault %s was not found: no message is %s; to repeat: %s", name, fault.Rule, c.repeat(name))
}

// repeat is the command that makes a run again.
func (c *command) repeat(planted string) string {
	if planted == "" && !c.Race && c.Sessions == usualSessions {
		return fmt.Sprintf("make chaos SEED=%d DURATION=%s", c.Seed, c.Duration)
	}
	line := fmt.Sprintf("go run ./tests/cmd/rohrchaos --seed %d --duration %s --sessions %d", c.Seed, c.Duration, c.Sessions)
	if planted != "" {
		line += " --plant " + planted
	}
	if c.Race {
		line += " --race"
	}
	return line
}

// The exit codes of a run that found faults in the program, and of one that found what it was to find. 1 is that the run
// itself did not work.
const (
	exitFound  = 3
	exitWanted = 4
)

// one builds the program, with a planted fault where one is named, and makes one run.
func (c *command) one(planted string) (int, error) {
	dir, err := os.MkdirTemp("", "rohrchaos-")
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the user of PostgreSQL must get through
		return 1, err
	}
	binary := filepath.Join(dir, "rohrpost")
	if err := plant.Build(context.Background(), plant.Options{Source: c.Source, Out: binary, Fault: planted, Race: c.Race}); err != nil {
		return 1, errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Printf("%s\n%s of faults and about a minute of judging, %s at most in all; logs in %s\n", c.repeat(planted), c.Duration,
		c.Duration+chaos.Overtime, dir)
	limit := c.Duration + chaos.Overtime + forced
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("it did not end within %s", limit))
	defer cancel()
	code, err := cluster.Enter(ctx, []string{
		"--seed", fmt.Sprint(c.Seed), "--duration", c.Duration.String(), "--sessions", fmt.Sprint(c.Sessions),
		"--binary", binary, "--dir", dir, "--want", c.Want, "--repeat", c.repeat(planted),
	})
	if err == nil && (code == 0 || code == exitWanted) && !c.Keep {
		err = os.RemoveAll(dir)
	}
	return code, err
}

// inside makes the run. The process is the first of its namespaces.
func (c *command) inside() (int, error) {
	if err := cluster.Settle(); err != nil {
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := chaos.Run(ctx, chaos.Options{
		Binary: c.Binary, Dir: c.Dir, Seed: c.Seed, Duration: c.Duration, Sessions: c.Sessions, Repeat: c.Repeat, Out: os.Stdout,
	})
	report.Write(os.Stdout)
	switch {
	case err != nil:
		return 1, err
	case c.Want != "" && report.Breaks(c.Want):
		return exitWanted, nil
	case !report.OK():
		return exitFound, nil
	default:
		return 0, nil
	}
}
