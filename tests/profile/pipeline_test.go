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
	t.Logf("takes about %s", warmUp+profiled+20*time.Second)
	p, s := pipeline(t)
	loaded := make(chan *gen.Result, 1)
	go func() {
		result, err := gen.Run(t.Context(), gen.Config{
			Target: p.SMTP(), Sessions: 50, PerSession: 10, Duration: warmUp + profiled + 2*time.Second,
			Mails: []*mail.Mail{mail.Sized(4 << 10)}, Domains: []string{"a.test", "b.test", "c.test", "d.test"},
		})
		if err != nil {
			t.Error(err)
		}
		loaded <- result
	}()
	time.Sleep(warmUp)
	before := s.Stats()
	watch, err := machine.Start(groups(t, p), "generator and sink")
	if err != nil {
		t.Fatal(err)
	}
	profiles := fetch(t, p, dir)
	after := s.Stats()
	usage, err := watch.Stop()
	if err != nil {
		t.Fatal(err)
	}
	<-loaded
	messages := after.Accepted - before.Accepted
	if messages == 0 {
		t.Fatal("nothing arrived at the sink while the profiles were taken")
	}
	var steps []profile.Step
	for _, stage := range stages {
		steps = append(steps, profile.Steps(stage, profiles[stage])...)
	}
	steps = append(steps, profile.Step{
		Service: "PostgreSQL", Name: "all", CPU: time.Duration(usage.Groups["postgres"].CPU * float64(time.Second)),
	})
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d messages arrived in %.1f s: %.0f/s\n", messages, usage.Wall, float64(messages)/usage.Wall)
	if len(usage.Contaminated) > 0 {
		fmt.Fprintf(&out, "CONTAMINATED: %s\n", strings.Join(usage.Contaminated, "; "))
	}
	fmt.Fprintln(&out)
	if err := profile.Write(&out, steps, messages); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "\nCPU of each process, µs per message:")
	for _, name := range append(append([]string{}, stages...), "postgres", "generator and sink") {
		fmt.Fprintf(&out, " %s %.0f,", name, usage.Groups[name].CPU*1e6/float64(messages))
	}
	fmt.Println(out.String())
	if err := os.WriteFile(filepath.Join(dir, "table.md"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
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

// fetch takes the profiles of all services at the same time and keeps them.
func fetch(t *testing.T, p *rohrtest.Pipeline, dir string) map[string]*pprof.Profile {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	profiles := map[string]*pprof.Profile{}
	for _, stage := range stages {
		wg.Go(func() {
			base := "http://" + p.Profiles(stage) + "/debug/pprof/"
			cpu := get(t, fmt.Sprintf("%sprofile?seconds=%d", base, int(profiled.Seconds())))
			files := map[string][]byte{"cpu": cpu}
			for _, kind := range []string{"heap", "allocs", "block", "mutex"} {
				files[kind] = get(t, base+kind)
			}
			for kind, data := range files {
				if err := os.WriteFile(filepath.Join(dir, stage+"."+kind+".pprof"), data, 0o600); err != nil {
					t.Error(err)
				}
			}
			parsed, err := pprof.ParseData(cpu)
			if err != nil {
				t.Errorf("%s: %v", stage, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			profiles[stage] = parsed
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return profiles
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
