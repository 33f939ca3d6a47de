//go:build unix

package mime

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
	process.PaceGC(process.ParserPercent) // as `rohrpost parser` does
	work := works[kind](&testing.B{})
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	work()
	return 0
}

// works are the kinds of work of one worker, about a second each: less, and what the machine does besides would decide.
var works = map[string]func(testing.TB) func(){
	"parse": func(t testing.TB) func() {
		mails := corpus(t)
		return func() {
			for range 30 {
				for _, content := range mails {
					parser.Parse(content, parser.Limits{})
				}
			}
		}
	},
	"arithmetic": func(testing.TB) func() {
		return func() {
			x := uint64(1)
			for range 1_000_000_000 {
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
// a plain arithmetic loop keeps on the same machine ("loop"), and what part the first is of the second ("of-loop", with the
// lowest and the highest). Each iteration measures all four times, one after the other; the figures are medians.
func BenchmarkScaling(b *testing.B) {
	corpus(b)
	process.PaceGC(process.ParserPercent) // as `rohrpost parser` does
	for name, run := range map[string]func(*testing.B, string, int) time.Duration{"goroutines": goroutines, "processes": processes} {
		for _, n := range []int{2, 4, 8} {
			b.Run(fmt.Sprintf("%s-%d", name, n), func(b *testing.B) {
				var kept, loop, part []float64
				for b.Loop() {
					k := keeps(func(n int) time.Duration { return run(b, "parse", n) }, n)
					l := keeps(func(n int) time.Duration { return run(b, "arithmetic", n) }, n)
					kept, loop, part = append(kept, k), append(loop, l), append(part, k/l)
				}
				b.ReportMetric(median(kept), "kept")
				b.ReportMetric(median(loop), "loop")
				b.ReportMetric(median(part), "of-loop")
				b.ReportMetric(slices.Min(part), "lowest")
				b.ReportMetric(slices.Max(part), "highest")
			})
		}
	}
}

// keeps is the part of its speed that one of n workers has, of what one alone has before and after them.
func keeps(run func(n int) time.Duration, n int) float64 {
	before, together, after := run(1), run(n), run(1)
	return (before + after).Seconds() / 2 / together.Seconds()
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
