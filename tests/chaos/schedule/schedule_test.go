package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func plan() Plan {
	return Plan{
		Nodes: []string{"gateway-1", "gateway-2", "spool-1", "spool-2", "parser-1", "filter-1", "deliver-1", "deliver-2"},
		Links: [][2]string{{"spool-1", Postgres}, {"deliver-1", "spool-2"}},
		Disks: []string{"postgres-wal", "mail"},
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	one, two := Make(7, 2*time.Minute, plan()), Make(7, 2*time.Minute, plan())
	if !slices.Equal(one, two) {
		t.Error("the same seed gave two schedules")
	}
	if slices.Equal(one, Make(8, 2*time.Minute, plan())) {
		t.Error("two seeds gave the same schedule")
	}
}

// Whatever the seed: all faults end within the run, in the order of their times, and no node has two at a time.
func TestFaultsAreFeasible(t *testing.T) {
	const length = 2 * time.Minute
	for seed := range uint64(200) {
		faults := Make(seed, length, plan())
		if len(faults) < 30 {
			t.Fatalf("seed %d: only %d faults in %s", seed, len(faults), length)
		}
		until := map[string]time.Duration{}
		last := time.Duration(0)
		for _, f := range faults {
			if f.At < last || f.At < margin || f.End() > length-margin {
				t.Errorf("seed %d: %s is out of order or of the run", seed, f)
			}
			last = f.At
			for _, name := range []string{f.Node, f.Peer} {
				if strings.HasPrefix(name, Postgres) {
					name = Postgres
				}
				if name != "" && f.At < until[name] {
					t.Errorf("seed %d: %s, but %s is busy until %s", seed, f, name, until[name])
				}
				until[name] = f.End()
			}
		}
	}
}

// Two minutes have nearly every kind, and an upgrade of all services.
func TestCoverage(t *testing.T) {
	for seed := range uint64(50) {
		kinds, restarted := map[Kind]bool{}, map[string]bool{}
		for _, f := range Make(seed, 2*time.Minute, plan()) {
			kinds[f.Kind] = true
			if f.Kind == Restart {
				restarted[f.Node] = true
			}
		}
		if len(kinds) < 8 {
			t.Errorf("seed %d has only %d kinds of faults", seed, len(kinds))
		}
		for _, node := range plan().Nodes {
			if !restarted[node] {
				t.Errorf("seed %d does not restart %s", seed, node)
			}
		}
	}
}

func TestString(t *testing.T) {
	f := Fault{At: 12500 * time.Millisecond, For: 3 * time.Second, Kind: Partition, Node: "spool-1", Peer: Postgres}
	if got, want := f.String(), "  12.5s  partition spool-1 from postgres for 3.0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
