package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the program with arguments.
func run(ctx context.Context, args ...string) error {
	var c commands
	parser, err := kong.New(&c, kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return command.Run()
}

// A generator and a sink apart, each with a ledger, make one report.
func TestGeneratorAndSinkApart(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	address, err := stack.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := `[{"at":"dot","recipient":"user7@*","reply":"451 4.3.0 later","times":1}]`
	if err := os.WriteFile(in("script.json"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sunk := make(chan error, 1)
	go func() {
		sunk <- run(ctx, "sink", "--smtp", address, "--ledger", in("arrivals"), "--script", in("script.json"), "-q", "-o", in("sink.json"))
	}()
	up, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stack.Greeted(up, address); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "gen", address, "-c", "5", "-n", "50", "--size", "500,9000", "--ledger", in("sent"), "-q", "-o", in("gen.json")); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-sunk; err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "report", in("gen.json"), in("sink.json"), "--json", in("all.json"), "--html", in("all.html"), "--markdown", in("all.md")); err != nil {
		t.Fatal(err)
	}
	all, err := report.Read(in("all.json"))
	if err != nil || len(all.Cases) != 1 || len(all.Cases[0].Runs) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	one := &all.Cases[0].Runs[0]
	if missing, twice, broken := report.Lost(one); missing+twice+broken != 0 || one.Gens[0].Accepted != 49 || one.Sinks[0].Distinct != 49 || len(one.Usage.Groups) != 2 {
		t.Errorf("%+v %+v", one.Gens[0], one.Sinks[0])
	}
	for _, name := range []string{"all.html", "all.md"} {
		if text, err := os.ReadFile(in(name)); err != nil || !strings.Contains(string(text), "dot 451:1") {
			t.Errorf("%s lacks the refusal: %v", name, err)
		}
	}
	sent, err := ledger.Read[ledger.Entry](in("sent"))
	arrivals, err2 := ledger.Read[ledger.Arrival](in("arrivals"))
	if len(sent) != 50 || len(arrivals) != 50 || err != nil || err2 != nil {
		t.Errorf("%d sent, %d arrivals, %v %v", len(sent), len(arrivals), err, err2)
	}
}

// Both ends in one process; mail that a sink elsewhere took is missing, and the program says so.
func TestGeneratorWithSink(t *testing.T) {
	address, err := stack.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "gen", address, "--sink", address, "-n", "20", "-q"); err != nil {
		t.Error(err)
	}
	other, err := stack.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sunk := make(chan error, 1)
	go func() { sunk <- run(ctx, "sink", "--smtp", other, "-q") }()
	up, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stack.Greeted(up, other); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "gen", other, "--sink", address, "-n", "20", "-q", "--settle", "50ms"); !errors.Is(err, errFound) {
		t.Errorf("mail went elsewhere: %v", err)
	}
	stop()
	if err := <-sunk; err != nil {
		t.Error(err)
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		{"gen", "192.0.2.1:25", "-n", "1"}, {"gen", "127.0.0.1:1"}, {"sink", "--script", "/nonexistent"}, {"report", "/nonexistent"}, {"gen", "127.0.0.1:1", "-n", "1", "--mix", "/nonexistent"},
	} {
		if err := run(t.Context(), args...); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}
