//go:build processes

package bench

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/report"
)

// programs builds what is measured.
func programs(t *testing.T) Options {
	t.Helper()
	bin, err := os.MkdirTemp("", "rohrload-bin-") //nolint:usetesting // root's t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "../../services/cmd/rohrpost", "../cmd/rohrload")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return Options{Rohrpost: bin + "/rohrpost", Rohrload: bin + "/rohrload", Rounds: 1, Log: os.Stderr, Volatile: true, bound: 4 * time.Minute}
}

// A floor of the database is measured with rows of the spool.
func TestMeasuresFloor(t *testing.T) {
	o := programs(t)
	o.Only = regexp.MustCompile(`COPY .* mean batch`)
	r, err := Peers(t.Context(), o)
	if err != nil || len(r.Cases) != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	run := &r.Cases[0].Runs[0]
	if run.Failed != "" || !(report.Value("value")(run) > 0) || !(report.Value("batch")(run) > 0) || r.Environment.Others["PostgreSQL"] == "" {
		t.Errorf("%+v, with %v", run, r.Environment.Others)
	}
}

// One case of each way through the pipeline is measured with the built programs, and no mail is missing.
func TestMeasuresProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o := programs(t)
	o.Only = regexp.MustCompile(`(reception|whole).* 4 KiB, (plain|STARTTLS), 10/session, 50 sessions`)
	r, err := Matrix(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 6 || r.Environment.Others["PostgreSQL"] == "" || r.Environment.Data == "" {
		t.Errorf("%d cases, %+v", len(r.Cases), r.Environment)
	}
	for _, c := range r.Cases {
		run := &c.Runs[0]
		missing, twice, broken := report.Lost(run)
		if run.Failed != "" || !(report.Rate(run) > 0) || !(report.Open(run) > 0) || missing+twice+broken > 0 || len(run.Gens[0].Errors) > 0 {
			t.Errorf("%s %s: %s, %g/s, %d missing, %d twice, %d broken, %v", c.Group, c.Name, run.Failed, report.Rate(run), missing, twice, broken, run.Gens[0].Errors)
		}
		if c.Group == whole && (!(report.WholeRate(run) > 0) || run.Hidden == nil) {
			t.Errorf("%s %s: %g/s the whole way, hidden %v", c.Group, c.Name, report.WholeRate(run), run.Hidden)
		}
		if !(report.CPU("server")(run) > 0 && report.PSS("server")(run) > 0 && report.CPU("generator")(run) > 0 && run.Startup > 0) {
			t.Errorf("%s %s: %+v", c.Group, c.Name, run.Usage)
		}
	}
}
