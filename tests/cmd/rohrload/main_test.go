package main

import (
	"context"
	"errors"
	"net/smtp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/sink"
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
	if err := run(t.Context(), "report", in("gen.json"), in("sink.json"), "--json", in("counts.json")); err != nil {
		t.Fatal(err)
	}
	counts, err := report.Read(in("counts.json"))
	if err != nil || report.Unproven(&counts.Cases[0].Runs[0]) != 1 {
		t.Errorf("by counts alone nothing is unproven: %v", err)
	}
	ledgers := []string{"--sent", in("sent"), "--arrivals", in("arrivals")}
	forms := []string{"--json", in("all.json"), "--html", in("all.html"), "--markdown", in("all.md")}
	if err := run(t.Context(), slices.Concat([]string{"report", in("gen.json"), in("sink.json")}, forms, ledgers)...); err != nil {
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
	if !(report.WholeRate(one) > 0) || report.Unproven(one) != 0 {
		t.Errorf("%g/s the whole way, %d unproven", report.WholeRate(one), report.Unproven(one))
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

// Loss is an exit code of each command that sees it: a sink that got what nobody had sent, a report whose counts don't fit, and
// one whose counts fit because a mail of unknown outcome arrived in place of a lost one.
func TestLossIsAnExitCode(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	address, err := stack.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sunk := make(chan error, 1)
	go func() { sunk <- run(ctx, "sink", "--smtp", address, "-q", "-o", in("broken.json")) }()
	up, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stack.Greeted(up, address); err != nil {
		t.Fatal(err)
	}
	if err := smtp.SendMail(address, nil, "a@x.test", []string{"b@x.test"}, []byte("Subject: from elsewhere\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-sunk; !errors.Is(err, errFound) {
		t.Errorf("a sink with a strange mail: %v", err)
	}

	write := func(name string, r report.Run) {
		r.Number = 1
		all := &report.Report{Cases: []report.Case{{Name: "n", Runs: []report.Run{r}}}}
		if err := report.WriteFile(in(name), all.JSON); err != nil {
			t.Fatal(err)
		}
	}
	write("gen.json", report.Run{Gens: []*gen.Result{{Accepted: 2, Recipients: 2, Doubts: 1}}})
	write("one.json", report.Run{Sinks: []*sink.Stats{{Distinct: 1}}})
	write("two.json", report.Run{Sinks: []*sink.Stats{{Distinct: 2}}})
	if err := run(t.Context(), "report", in("gen.json"), in("one.json")); !errors.Is(err, errFound) {
		t.Errorf("one is missing: %v", err)
	}
	if err := run(t.Context(), "report", in("gen.json"), in("two.json")); err != nil {
		t.Errorf("the counts fit: %v", err)
	}
	for name, records := range map[string][]any{
		"sent": {
			ledger.Entry{ID: "1", Outcome: ledger.Accepted, Recipients: []string{"a@x"}},
			ledger.Entry{ID: "2", Outcome: ledger.Accepted, Recipients: []string{"a@x"}},
			ledger.Entry{ID: "3", Outcome: ledger.Unknown, Recipients: []string{"a@x"}},
		},
		"arrivals": {ledger.Arrival{ID: "1", Recipient: "a@x", Reply: 250}, ledger.Arrival{ID: "3", Recipient: "a@x", Reply: 250}},
	} {
		l, err := ledger.Open(in(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			if err := l.Write(record); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	err = run(t.Context(), "report", in("gen.json"), in("two.json"), "--sent", in("sent"), "--arrivals", in("arrivals"), "--json", in("all.json"))
	if !errors.Is(err, errFound) || !strings.Contains(err.Error(), "2 a@x") {
		t.Errorf("by ids one is missing: %v", err)
	}
	if all, err := report.Read(in("all.json")); err != nil || *all.Cases[0].Runs[0].Hidden != 1 {
		t.Errorf("%v %+v", err, all)
	}
	if err := run(t.Context(), "report", in("gen.json"), "--sent", in("sent")); err == nil || errors.Is(err, errFound) {
		t.Errorf("one ledger alone: %v", err)
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
		{"gen", "127.0.0.1:1", "-n", "1", "--timeout", "10ms", "-q"},
		{"gen", "127.0.0.1:1", "-n", "1", "--watch", "server"},
		{"sink", "--watch", "=7"},
		{"sink", "--watch", "server=1000000000", "--smtp", "127.0.0.1:0", "-d", "1ms"},
		{"gen", "192.0.2.1:25", "-n", "1"},
		{"gen", "127.0.0.1:1"},
		{"sink", "--script", "/nonexistent"},
		{"report", "/nonexistent"},
		{"gen", "127.0.0.1:1", "-n", "1", "--mix", "/nonexistent"},
		{"gen", "127.0.0.1:1", "-n", "1", "--size", "-1"},
		{"gen", "127.0.0.1:1", "-n", "1", "--size", "1000000000"},
		{"sink", "--out", "/nonexistent/sink.json"},
	} {
		if err := run(t.Context(), args...); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}

// Nobody is to take a mistake in the command line for lost mail.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"gen"}, 2},
		{[]string{"bench", "--rohrpost", "/nonexistent"}, 2},
		{[]string{"sink", "--nonsense"}, 2},
		{[]string{"sink", "--smtp", "127.0.0.1:0", "-d", "1ms", "-q", "--keep", filepath.Join(t.TempDir(), "raw", "new")}, 0},
	} {
		if got := program(c.args, func(int) { t.Errorf("%v: it exits by itself", c.args) }); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, got, c.code)
		}
	}
}

// A ledger that could not be written whole proves nothing, and neither end may end as if all were well.
func TestLedgerThatIsFull(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("there is no " + full)
	}
	address, err := stack.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), "gen", address, "--sink", address, "-n", "3", "-q", "--ledger", full)
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, errFound) {
		t.Errorf("gen: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sunk := make(chan error, 1)
	go func() { sunk <- run(ctx, "sink", "--smtp", address, "-q", "--ledger", full) }()
	up, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stack.Greeted(up, address); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "gen", address, "-n", "3", "-q"); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-sunk; !errors.Is(err, syscall.ENOSPC) || errors.Is(err, errFound) {
		t.Errorf("sink: %v", err)
	}
}

// A case of which no round could be measured is an error; one of which a round failed is not.
func TestUnmeasuredCase(t *testing.T) {
	good, bad := report.Run{Number: 1}, report.Run{Number: 2, Failed: "the time was over"}
	r := &report.Report{Cases: []report.Case{{Name: "one", Runs: []report.Run{good, bad}}}}
	if err := unmeasured(r); err != nil {
		t.Errorf("a case that was measured once: %v", err)
	}
	r.Cases = append(r.Cases, report.Case{Name: "two", System: "postfix", Runs: []report.Run{bad}})
	if err := unmeasured(r); err == nil || !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(err.Error(), "two postfix") {
		t.Errorf("a case that never was: %v", err)
	}
}
