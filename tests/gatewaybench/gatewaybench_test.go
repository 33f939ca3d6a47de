package gatewaybench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// asPrograms makes this test's program do what the programs do that are measured, so that they need not be built.
const asPrograms = "GATEWAYBENCH_AS_PROGRAMS"

func TestMain(m *testing.M) {
	if os.Getenv(asPrograms) != "" {
		if err := program(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// program is `rohrload floor`, `rohrload discard`, and rohrpost.
func program(command string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var bare peers.Bare
	var config, data, database string
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	flags.DurationVar(&bare.Delay, "delay", 0, "")
	flags.StringVar(&bare.Cert, "cert", "", "")
	flags.StringVar(&bare.Key, "key", "", "")
	flags.StringVar(&bare.Debug, "debug", "", "")
	flags.StringVar(&config, "config", "", "")
	flags.StringVar(&data, "data", "", "")
	flags.StringVar(&database, "database", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if command == "floor" {
		bare.Address = flags.Arg(0)
		return bare.Serve(ctx)
	}
	cfg := services.DefaultConfig()
	if err := process.Load(config, os.Environ(), &cfg); err != nil {
		return err
	}
	switch command {
	case "discard":
		return stack.Discard(ctx, &cfg)
	case "migrate":
		return services.Migrate(ctx, &cfg)
	case "up":
		cfg.Spool.Database = database
		return services.Up(ctx, services.NewEnv(&cfg, "test"), &cfg, services.UpOptions{Data: data})
	}
	return services.Run(ctx, services.NewEnv(&cfg, "test"), &cfg, command)
}

// Every case works, with counts so small that the figures mean nothing.
func TestEveryCase(t *testing.T) {
	t.Setenv(asPrograms, "1")
	o := Options{
		Options: bench.Options{
			Rohrpost: os.Args[0], Rohrload: os.Args[0], Rounds: 1, Log: t.Output(), Title: "test", Command: "test", Slack: rohrtest.Patience, Volatile: true,
		},
		Measure: 200 * time.Millisecond, Sessions: 20,
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := o.Markdown(&text, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "FAILED") {
		t.Error(text.String())
	}
	_, noOpenSSL := exec.LookPath("openssl")
	for _, s := range o.sections() {
		for _, f := range s.Figures {
			if noOpenSSL != nil && strings.HasPrefix(f.Key, "openssl") {
				continue
			}
			if !strings.Contains(text.String(), "| "+f.Name+" | ") {
				t.Errorf("%s: the table has no %q", s.Title, f.Name)
			}
		}
	}
	if !strings.Contains(text.String(), "what did not go as it must [0] | 0 |") {
		t.Errorf("not every session was served:\n%s", text.String())
	}
}

// A bomb goes with its job: what is flooded is the parser, not the spool that it would read larger content from.
func TestBombIsSmall(t *testing.T) {
	if len(bomb()) > gateway.InlineLimit {
		t.Errorf("%d octets", len(bomb()))
	}
}
