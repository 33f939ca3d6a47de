//go:build unix

package mime

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/parser"
	"github.com/rohrpost/rohrpost/services/process"
)

// childVar makes the test binary a worker process that does one kind of work.
const childVar = "ROHRPOST_SCALING_WORK"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVar); kind != "" {
		os.Exit(child(kind))
	}
	os.Exit(m.Run())
}

// child gets ready, waits for a line, works and ends.
func child(kind string) int {
	process.PaceGC() // as `rohrpost parser` does
	work := works[kind](&testing.B{})
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	work()
	return 0
}

// works are the kinds of work of one worker, some tenths of a second each.
var works = map[string]func(testing.TB) func(){
	"parse": func(t testing.TB) func() {
		mails := corpus(t)
		return func() {
			for range 10 {
				for _, content := range mails {
					parser.Parse(content, parser.Limits{})
				}
			}
		}
	},
	"arithmetic": func(testing.TB) func() {
		return func() {
			x := uint64(1)
			for range 300_000_000 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			runtime.KeepAlive(x)
		}
	},
}

// goroutines runs the work n times at once, on a core for each as long as there are any: otherwise one worker alone would have
// its garbage collected by a core that several must share.
func goroutines(b *testing.B, kind string, n int) time.Duration {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(min(n, runtime.NumCPU())))
	work := works[kind](b)
	start := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(work)
	}
	all.Wait()
	return time.Since(start)
}

// processes does so in processes of one thread each.
func processes(b *testing.B, kind string, n int) time.Duration {
	b.Helper()
	var release []func() error
	var children []*exec.Cmd
	for range n {
		cmd := exec.CommandContext(b.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVar+"="+kind, "GOMAXPROCS=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			b.Fatalf("the worker is not ready: %v", err)
		}
		children = append(children, cmd)
		release = append(release, func() error {
			_, err := in.Write([]byte("\n"))
			return err
		})
	}
	start := time.Now()
	for _, r := range release {
		if err := r(); err != nil {
			b.Fatal(err)
		}
	}
	for _, cmd := range children {
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// BenchmarkScaling tells how much of its speed a worker keeps when n of them read the whole corpus at once ("kept"), how much
// a plain arithmetic loop keeps on the same machine ("loop"), and what part the first is of the second ("of-loop"). Each
// iteration measures all four times anew; the best of each counts.
func BenchmarkScaling(b *testing.B) {
	corpus(b)
	process.PaceGC() // as `rohrpost parser` does
	for name, run := range map[string]func(*testing.B, string, int) time.Duration{"goroutines": goroutines, "processes": processes} {
		for _, n := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%s-%d", name, n), func(b *testing.B) {
				best := map[string]time.Duration{}
				measure := func(kind string, n int) {
					key := fmt.Sprint(kind, n == 1)
					if took := run(b, kind, n); best[key] == 0 || took < best[key] {
						best[key] = took
					}
				}
				for b.Loop() {
					for kind := range works {
						measure(kind, 1)
						if n > 1 {
							measure(kind, n)
						}
					}
				}
				if n == 1 {
					return
				}
				kept := func(kind string) float64 {
					return best[kind+"true"].Seconds() / best[kind+"false"].Seconds()
				}
				b.ReportMetric(kept("parse"), "kept")
				b.ReportMetric(kept("arithmetic"), "loop")
				b.ReportMetric(kept("parse")/kept("arithmetic"), "of-loop")
			})
		}
	}
}
