//go:build profile

package profile_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/resolver"
	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/sink"
	"github.com/rohrpost/rohrpost/tests/load/stack"
	"github.com/rohrpost/rohrpost/tests/profile"
)

func TestMain(m *testing.M) { os.Exit(rohrtest.Main(m)) }

// The standard load: mails of 4 KB, 10 on each connection, 50 sessions at once, through six processes to a sink.
const (
	warmUp   = 5 * time.Second
	profiled = 20 * time.Second
)

var stages = []string{"gateway", "spool", "parser", "filter", "deliver"}

// Where a message's CPU goes. Writes profiles of each service and a table into the folder PROFILE_DIR.
func TestWhereCPUGoes(t *testing.T) {
	dir := os.Getenv("PROFILE_DIR")
	if dir == "" {
		t.Fatal("PROFILE_DIR is not set: run make profile")
	}
	fmt.Fprintf(os.Stderr, "takes about %s, and 2 minutes at most where the machine is busy\n", warmUp+profiled+20*time.Second)
	p, s := pipeline(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	loaded := load(ctx, t, p)
	time.Sleep(warmUp)
	before := s.Stats()
	watch, err := machine.Start(groups(t, p), "generator and sink")
	if err != nil {
		t.Fatal(err)
	}
	// All that is divided by each other is of the same time, while the load goes on; the other profiles come after.
	profiles := cpuProfiles(t, p, dir)
	after := s.Stats()
	usage, err := watch.Stop()
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, p, dir, "heap", "allocs", "block", "mutex")
	stop()
	<-loaded
	messages := after.Accepted - before.Accepted
	if messages == 0 {
		t.Fatal("nothing arrived at the sink while the profiles were taken")
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d messages arrived in %.1f s: %.0f/s, with the sampling of blocks and mutexes on\n", messages, usage.Wall, float64(messages)/usage.Wall)
	if len(usage.Contaminated) > 0 {
		fmt.Fprintf(&out, "CONTAMINATED: %s\n", strings.Join(usage.Contaminated, "; "))
	}
	fmt.Fprintln(&out)
	if err := profile.Write(&out, byService(profiles, usage.Groups), messages); err != nil {
		t.Fatal(err)
	}
	fmt.Println(out.String())
	if err := os.WriteFile(filepath.Join(dir, "table.md"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// byService joins what the profiles saw with what the kernel counted.
func byService(profiles map[string]*pprof.Profile, used map[string]machine.Group) []profile.Service {
	var all []profile.Service
	for _, name := range append(append([]string{}, stages...), "postgres", "generator and sink") {
		s := profile.Service{Name: name, CPU: time.Duration(used[name].CPU * float64(time.Second))}
		if p := profiles[name]; p != nil {
			s.Steps = profile.Steps(p)
		}
		all = append(all, s)
	}
	return all
}

// load makes the load until ctx ends. The channel gets what came of it.
func load(ctx context.Context, t *testing.T, p *rohrtest.Pipeline) <-chan *gen.Result {
	loaded := make(chan *gen.Result, 1)
	go func() {
		result, err := gen.Run(ctx, gen.Config{
			Target: p.SMTP(), Sessions: 50, PerSession: 10, Duration: time.Hour,
			Mails: []*mail.Mail{mail.Sized(4 << 10)}, Domains: []string{"a.test", "b.test", "c.test", "d.test"},
		})
		if err != nil {
			t.Error(err)
		}
		loaded <- result
	}()
	return loaded
}

func pipeline(t *testing.T) (*rohrtest.Pipeline, *sink.Sink) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "rohrpost")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../services/cmd/rohrpost").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	s, err := sink.Start(t.Context(), sink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p := rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithoutTraces(), rohrtest.WithProfiles(),
		rohrtest.WithConfig(func(cfg *services.Config) {
			cfg.Log.Level = slog.LevelWarn
			// As make bench does: what a name server takes is none of our CPU.
			cfg.Resolver.Zone = []resolver.Record{{Name: "a.example", Type: "TXT", Value: "v=spf1 ip4:127.0.0.0/8 -all"}}
			cfg.Deliver.Routes = []deliver.Route{{
				Match: []pattern.Pattern{pattern.MustParse("*")}, Via: deliver.ViaSMTP, SMTP: deliver.SMTPRoute{Address: s.SMTP()},
			}}
		}))
	return p, s
}

// groups are the processes to watch, by service.
func groups(t *testing.T, p *rohrtest.Pipeline) map[string][]int {
	t.Helper()
	groups := map[string][]int{}
	for _, stage := range stages {
		groups[stage] = []int{p.PID(stage)}
	}
	pid, err := stack.Postmaster(p.Postgres().Dir())
	if err != nil {
		t.Fatal(err)
	}
	groups["postgres"] = []int{pid}
	return groups
}

// cpuProfiles takes the CPU profiles of all services at the same time.
func cpuProfiles(t *testing.T, p *rohrtest.Pipeline, dir string) map[string]*pprof.Profile {
	t.Helper()
	fetch(t, p, dir, "cpu")
	profiles := map[string]*pprof.Profile{}
	for _, stage := range stages {
		data, err := os.ReadFile(filepath.Join(dir, stage+".cpu.pprof"))
		if err != nil {
			t.Fatal(err)
		}
		if profiles[stage], err = pprof.ParseData(data); err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
	}
	return profiles
}

// fetch takes profiles of all services at the same time and keeps them.
func fetch(t *testing.T, p *rohrtest.Pipeline, dir string, kinds ...string) {
	t.Helper()
	var wg sync.WaitGroup
	for _, stage := range stages {
		wg.Go(func() {
			for _, kind := range kinds {
				url := "http://" + p.Profiles(stage) + "/debug/pprof/" + kind
				if kind == "cpu" {
					url = fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.Profiles(stage), int(profiled.Seconds()))
				}
				if err := os.WriteFile(filepath.Join(dir, stage+"."+kind+".pprof"), get(t, url), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func get(t *testing.T, url string) []byte {
	ctx, cancel := context.WithTimeout(t.Context(), profiled+rohrtest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %v %s", url, resp.Status, err, data)
	}
	return data
}
