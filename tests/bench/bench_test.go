package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The matrix has what issue 4 asks for, and no case twice.
func TestMatrix(t *testing.T) {
	for full, least := range map[bool]int{false: 25, true: 60} {
		m := matrix{Options: Options{Full: full}}
		m.reception()
		m.models()
		m.parsers()
		m.together()
		m.study()
		seen := map[string]bool{}
		var estimate time.Duration
		for _, e := range m.entries {
			if seen[e.title()] {
				t.Errorf("%s twice", e.title())
			}
			seen[e.title()] = true
			estimate += e.takes
			if (e.load.duration > 0) == (e.load.messages > 0) || e.takes < time.Second || e.load.sessions == 0 {
				t.Errorf("%s: %+v, takes %s", e.title(), e.load, e.takes)
			}
		}
		if len(seen) < least {
			t.Errorf("full %t has %d cases only", full, len(seen))
		}
		t.Logf("full %t: %d cases, one round takes %s", full, len(seen), estimate)
		if !full && 3*estimate > 30*time.Minute {
			t.Errorf("three rounds of the short matrix take %s", 3*estimate)
		}
	}
}

// A case that fails is reported and does not end the others.
func TestFailureIsAResult(t *testing.T) {
	broken := func(context.Context, peers.Options) (*peers.Server, error) { return nil, errors.New("no such thing") }
	value := func(context.Context, string) (map[string]float64, error) { return map[string]float64{"value": 7}, nil }
	r, err := run(t.Context(), Options{Rounds: 3, Log: io.Discard, Volatile: true}, []entry{
		{group: "g", name: "a", system: "s", start: broken, takes: time.Second}, {group: "g", name: "b", system: "s", value: value, takes: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Cases[0], r.Cases[1]; len(a.Runs) != 3 || !strings.Contains(a.Runs[2].Failed, "no such") || b.Spread(report.Value("value")).Median != 7 {
		t.Errorf("%+v", r.Cases)
	}
	entries := []entry{{group: "g", name: "a", system: "s", value: value}}
	if _, err := run(t.Context(), Options{Rounds: 1, Only: regexp.MustCompile("nothing")}, entries); err == nil || !strings.Contains(err.Error(), "\n  g a s") {
		t.Errorf("no case: %v", err)
	}
	if r, err := run(t.Context(), Options{Log: io.Discard, Volatile: true}, entries); err == nil || r != nil {
		t.Errorf("no round: %v %+v", err, r)
	}
}

// What was measured when it was cut short is kept, and the rest left out.
func TestCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	measured := 0
	value := func(context.Context, string) (map[string]float64, error) {
		if measured++; measured == 2 {
			cancel()
		}
		return map[string]float64{"value": 7}, nil
	}
	var log strings.Builder
	r, err := run(ctx, Options{Rounds: 3, Log: &log, Volatile: true}, []entry{{group: "g", name: "a", value: value}, {group: "g", name: "b", value: value}})
	if !errors.Is(err, context.Canceled) || len(r.Cases) != 1 || len(r.Cases[0].Runs) != 1 || !strings.Contains(log.String(), "not measured, it was broken off") {
		t.Errorf("%v %+v\n%s", err, r, log.String())
	}
	dir := t.TempDir()
	if err := Write(r, dir, "x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.json", "x.html", "x.md"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFsyncs(t *testing.T) {
	for _, anew := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		dir := t.TempDir()
		values, err := fsyncs(anew)(ctx, dir)
		files, _ := os.ReadDir(dir)
		if err != nil || values["value"] <= 0 || (len(files) > 1) != anew {
			t.Errorf("anew %t: %v %v, %d files", anew, values, err, len(files))
		}
	}
}

// Where nothing is durable nothing is measured, unless that is wanted; then it is said.
func TestVolatileDisk(t *testing.T) {
	o := Options{Data: "/dev/shm"}
	if kind, err := o.disk(); err == nil || !strings.Contains(err.Error(), "--volatile") {
		t.Errorf("%q %v", kind, err)
	}
	value := func(context.Context, string) (map[string]float64, error) { return map[string]float64{"value": 7}, nil }
	entries := []entry{{group: "g", name: "a", value: value}}
	o.Rounds, o.Log = 1, io.Discard
	if _, err := run(t.Context(), o, entries); err == nil {
		t.Error("it measured on a tmpfs")
	}
	o.Volatile = true
	r, err := run(t.Context(), o, entries)
	if err != nil || !strings.Contains(r.Environment.Data, "tmpfs: NOTHING") {
		t.Errorf("%v %+v", err, r)
	}
	var b strings.Builder
	if err := r.Table(&b); err != nil || !strings.Contains(b.String(), "NOTHING IS DURABLE") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// What it says is the longest it takes is: a case that does not end is cut short, and is no result.
func TestBound(t *testing.T) {
	o := Options{Rounds: 2, Log: io.Discard, Volatile: true, bound: 50 * time.Millisecond}
	value := func(ctx context.Context, _ string) (map[string]float64, error) {
		<-ctx.Done()
		return map[string]float64{"value": 7}, nil
	}
	begun := time.Now()
	r, err := run(t.Context(), o, []entry{{group: "g", name: "a", value: value, takes: time.Hour}})
	if err == nil || r != nil || time.Since(begun) > time.Minute { // nor is there a report, which would take the place of an earlier one
		t.Errorf("%v %+v after %s", err, r, time.Since(begun))
	}
}

// Sessions are measured for two lives where that is possible in a case, and 1 MiB for as many messages as others.
func TestLasts(t *testing.T) {
	for _, c := range []struct {
		d     dimensions
		guess int
		want  time.Duration
	}{
		{dimensions{sessions: 50, perSession: 10}, 1000, 4 * time.Second},
		{dimensions{sessions: 1000, perSession: 10}, 1000, 20 * time.Second},
		{dimensions{sessions: 50, perSession: 10}, 25, 40 * time.Second},
		{dimensions{sessions: 50, perSession: 1}, 50, 10 * time.Second},
		{dimensions{sessions: 10_000, perSession: 10}, 1000, 4 * time.Second},
	} {
		if got := c.d.lasts(4*time.Second, c.guess); got != c.want {
			t.Errorf("%+v at %d/s lasts %s, want %s", c.d, c.guess, got, c.want)
		}
	}
}
