package spoolbench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/bench"
)

// asRohrpost makes this test's program do what the program that is measured does, so that it need not be built.
const asRohrpost = "SPOOLBENCH_AS_ROHRPOST"

func TestMain(m *testing.M) {
	if os.Getenv(asRohrpost) != "" {
		if err := rohrpost(os.Args[1], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// rohrpost is `rohrpost spool --config FILE`, and migrate.
func rohrpost(command, config string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := services.DefaultConfig()
	if err := process.Load(config, os.Environ(), &cfg); err != nil {
		return err
	}
	if command == "migrate" {
		return services.Migrate(ctx, &cfg)
	}
	return services.Run(ctx, services.NewEnv(&cfg, "test"), &cfg, command)
}

// Every case works, with counts so small that the figures mean nothing.
func TestEveryCase(t *testing.T) {
	t.Setenv(asRohrpost, "1")
	o := Options{
		Options: bench.Options{
			Rohrpost: os.Args[0], Rounds: 1, Log: t.Output(), Title: "test", Command: "test", Slack: rohrtest.Patience, Volatile: true,
			Only: regexp.MustCompile(`spool ([^:]*|.*: 2) rohrpost`), // one of the numbers of commits in flight
		},
		Measure: 100 * time.Millisecond, Outstanding: 4, Deferred: 200, Large: 2, LargeSize: 300_000,
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
	for _, s := range o.sections() {
		for _, f := range s.Figures {
			if strings.HasPrefix(f.In, caseCommits) && f.In != caseCommits+"2" {
				continue
			}
			if !strings.Contains(text.String(), "| "+f.Name+" | ") {
				t.Errorf("%s: the table has no %q", s.Title, f.Name)
			}
		}
	}
}
