package process

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// Every thread is lowered, those that are started meanwhile and later too, and none is raised. It is for good, so another process
// does it.
func TestNice(t *testing.T) {
	if os.Getenv("PROCESS_TEST_NICE") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNice$", "-test.v")
		cmd.Env = append(os.Environ(), "PROCESS_TEST_NICE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	start, err := niceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	want := min(start+5, 19)
	const before, meanwhile, after = 5, 20, 3
	var started, ended sync.WaitGroup
	started.Add(before + meanwhile + after)
	release := make(chan struct{})
	thread := func() {
		ended.Go(func() {
			runtime.LockOSThread()
			started.Done()
			<-release
		})
	}
	for range before {
		thread()
	}
	ended.Go(func() {
		for range meanwhile {
			thread()
			runtime.Gosched()
		}
	})
	if err := Nice(want); err != nil {
		t.Error(err)
	}
	if err := Nice(0); err != nil {
		t.Error(err)
	}
	for range after {
		thread()
	}
	started.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		if nice, err := niceOf(id); err == nil && nice != want {
			t.Errorf("a thread is %d nice, not %d", nice, want)
		}
	}
	if len(tasks) < before+meanwhile+after {
		t.Errorf("%d threads only", len(tasks))
	}
	close(release)
	ended.Wait()
}
