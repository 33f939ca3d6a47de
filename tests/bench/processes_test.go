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

// One case of each way through the pipeline is measured with the built programs, and no mail is missing.
func TestMeasuresProcesses(t *testing.T) {
	bin, err := os.MkdirTemp("", "rohrload-bin-") //nolint:usetesting // root's t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "../../services/cmd/rohrpost", "../cmd/rohrload")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := Matrix(ctx, Options{
		Rohrpost: bin + "/rohrpost", Rohrload: bin + "/rohrload", Rounds: 1, Log: os.Stderr,
		Only: regexp.MustCompile(`(reception|whole).* 4 KiB, (plain|STARTTLS), 10/session, 50 sessions`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 6 {
		t.Errorf("%d cases", len(r.Cases))
	}
	for _, c := range r.Cases {
		run := &c.Runs[0]
		missing, twice, broken := report.Lost(run)
		if run.Failed != "" || report.Rate(run) <= 0 || missing+twice+broken > 0 || len(run.Gens[0].Errors) > 0 {
			t.Errorf("%s %s: %s, %g/s, %d missing, %d twice, %d broken, %v", c.Group, c.Name, run.Failed, report.Rate(run), missing, twice, broken, run.Gens[0].Errors)
		}
		if report.CPU("server")(run) <= 0 || report.PSS("server")(run) <= 0 || report.CPU("generator")(run) <= 0 || run.Startup <= 0 {
			t.Errorf("%s %s: %+v", c.Group, c.Name, run.Usage)
		}
	}
}
