package machine

import (
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("MACHINE_TEST_BURN") != "" {
		burn()
	}
	goleak.VerifyTestMain(m)
}

var memory []byte // of burn; a local one would be optimised away

// burn uses a core and 64 MiB of memory until its standard input ends.
func burn() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	memory = make([]byte, 64<<20)
	for round := 0; ; round++ {
		for i := 0; i < len(memory); i += 4096 {
			memory[i]++
		}
		if round == 0 {
			_ = os.Stdout.Close() // says that the memory is used
		}
	}
}

// start starts a burner, which ends with the test, and waits until it burns.
func start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "MACHINE_TEST_BURN=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestGroupIsMeasured(t *testing.T) {
	cmd := start(t)
	w, err := Start(map[string][]int{"burner": {cmd.Process.Pid}}, "me")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // a sample is due each second
	u, err := w.Stop()
	if err != nil {
		t.Fatal(err)
	}
	g := u.Groups["burner"]
	if g.CPU < 0.05 || g.CPU > 60 || g.PeakPSS < 60<<20 || g.PeakPSS > 300<<20 || g.Processes != 1 {
		t.Errorf("the group used %+v", g)
	}
	if me := u.Groups["me"]; me.Processes != 1 || me.PeakPSS < 1<<20 || me.CPU < 0 || me.CPU > 30 {
		t.Errorf("this process used %+v", me)
	}
	if u.Wall < 1 || u.Busy <= 0 || u.Busy > 1.01 || u.Retransmits < 0 || u.Drops < 0 {
		t.Errorf("%+v", u)
	}
}

// A process that ends while it is watched leaves its whole time to its parent; what it had used before does not count.
func TestUsedWhenProcessesEnd(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	w := &Watch{
		first: map[int]process{5: {pid: 5, name: "postgres", parent: 1, cpu: second(1)}, 6: {pid: 6, name: "backend", parent: 5, cpu: second(10)}},
		last:  map[int]process{5: {pid: 5, name: "postgres", parent: 1, cpu: second(14)}, 7: {pid: 7, name: "backend", parent: 5, cpu: second(4)}},
	}
	// The server used 1 s itself, the backend that ended 2 s and the one that came 4 s.
	if cpu, n := w.used([]int{5}); cpu != second(7) || n != 2 {
		t.Errorf("%s of %d processes, want 7s of 2", cpu, n)
	}
}

// What the watch costs is not charged to who watches.
func TestWatchIsNotCharged(t *testing.T) {
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{
		groups: map[string][]int{"all": {1}}, self: "me", spent0: ownCPU(), begun: time.Now(), first: all, last: all, peak: map[string]int64{},
		stop: make(chan struct{}),
	}
	for range 20 {
		w.sample()
	}
	used := ownCPU() - w.spent0
	u, err := w.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if me := u.Groups["me"].CPU; w.cost <= 0 || me > used.Seconds()/2 {
		t.Errorf("of %s that the watch cost, %s were counted as such, and %.3f s charged", used, w.cost, me)
	}
}

func TestFileSystem(t *testing.T) {
	const mounts = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw,nosuid shared:1 - devtmpfs udev rw
24 22 0:6 / /tmp rw - tmpfs tmpfs rw
25 24 8:2 / /tmp/a\040disk rw shared:2 - xfs /dev/sdb rw
nonsense
`
	for path, want := range map[string]string{"/": "ext4", "/home/x": "ext4", "/tmp": "tmpfs", "/tmp/x": "tmpfs", "/tmpx": "ext4", "/tmp/a disk/x": "xfs"} {
		if got := fileSystem(mounts, path); got != want {
			t.Errorf("%s lies on %q, want %q", path, got, want)
		}
	}
	if kind, nothing := FileSystem("/dev/shm"); kind != "tmpfs" || !nothing {
		t.Errorf("/dev/shm lies on %q, which keeps nothing: %t", kind, nothing)
	}
	if kind, _ := FileSystem("/nonexistent"); kind != "" {
		t.Errorf("what is not there lies on %q", kind)
	}
}

func TestCommit(t *testing.T) {
	set := func(revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: modified}, {Key: "vcs.revision", Value: revision}}}
	}
	for info, want := range map[*debug.BuildInfo]string{
		set("0123456789abcdef", "false"): "0123456789ab", set("0123456789abcdef", "true"): "0123456789ab+", {}: "",
	} {
		if got := commit(info); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
	if Commit("/nonexistent") != "" {
		t.Error("a program that is not there has a commit")
	}
}

func TestFamily(t *testing.T) {
	all := map[int]process{
		1: {pid: 1}, 2: {pid: 2}, 10: {pid: 10, parent: 1}, 11: {pid: 11, parent: 10}, 12: {pid: 12, parent: 11}, 20: {pid: 20, parent: 1},
	}
	if got := family(all, 10); len(got) != 3 {
		t.Errorf("the family of 10 is %v", got)
	}
	if !ancestor(all, 10, 12) || ancestor(all, 20, 12) || !ancestor(all, 1, 12) {
		t.Error("ancestors")
	}
}

// The time of a process that ended counts once: with its parent where that has waited for it.
func TestMerge(t *testing.T) {
	before := map[int]process{1: {pid: 1}, 5: {pid: 5, parent: 1}, 6: {pid: 6, parent: 5}, 7: {pid: 7, parent: 5}, 8: {pid: 8, parent: 4}, 9: {pid: 9, parent: 1}}
	got := merge(before, map[int]process{1: {pid: 1}, 5: {pid: 5, parent: 1}}, map[string][]int{"x": {7}})
	for pid, want := range map[int]bool{1: true, 5: true, 6: false, 7: true, 8: true, 9: true} {
		if _, kept := got[pid]; kept != want {
			t.Errorf("process %d kept: %t, want %t", pid, kept, want)
		}
	}
}

// What another process uses contaminates; what a group, this process, its ancestors and the kernel use does not.
func TestForeign(t *testing.T) {
	me := os.Getpid()
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	w := &Watch{
		first: map[int]process{5: {pid: 5, name: "go", parent: 1, cpu: second(100)}},
		last: map[int]process{
			1: {pid: 1, name: "init", cpu: second(50)}, 5: {pid: 5, name: "go", parent: 1, cpu: second(101)}, 6: {pid: 6, name: "kworker", kernel: true, cpu: second(9)},
			7: {pid: 7, name: "server", parent: 1, cpu: second(9)}, me: {pid: me, name: "test", parent: 1, cpu: second(9)}, 9: {pid: 9, name: "gcc", parent: 5, cpu: second(2)},
		},
	}
	u := Usage{Busy: 1}
	names := w.foreign([]int{me, 7}, &u, second(20))
	if u.Foreign != 0.15 || strings.Join(names, " ") != "gcc go" {
		t.Errorf("foreign %g by %v, want 0.15 by gcc and go", u.Foreign, names)
	}
	u.Busy, u.Groups = 0.9, map[string]Group{"server": {CPU: 16}} // no more than the rest
	if w.foreign([]int{me, 7}, &u, second(20)); u.Foreign < 0.09 || u.Foreign > 0.11 {
		t.Errorf("foreign %g, want 0.1", u.Foreign)
	}
	u.Foreign, u.Steal = 0.15, 0.5
	w.beside = []int{7}
	w.judge(&u, names)
	if len(u.Contaminated) != 2 || !strings.Contains(u.Contaminated[0], "15 %") {
		t.Errorf("%q", u.Contaminated)
	}
	w.beside = nil // nobody knows who is measured, so nobody is foreign
	unnamed := Usage{Foreign: 0.15}
	if w.judge(&unnamed, names); unnamed.Contaminated != nil {
		t.Errorf("without groups: %q", unnamed.Contaminated)
	}
	clean := Usage{Foreign: maxForeign, Steal: maxSteal}
	w.judge(&clean, nil)
	if clean.Contaminated != nil {
		t.Errorf("%q", clean.Contaminated)
	}
}

func TestParse(t *testing.T) {
	p, ok := parseStat([]byte("42 (a (b) c) S 7 1 1 0 -1 4194560 1 2 3 4 100 50 25 5 20 0 1 0 9"))
	if !ok || p.pid != 42 || p.parent != 7 || p.name != "a (b) c" || p.cpu != 1800*time.Millisecond || p.kernel {
		t.Errorf("%+v %t", p, ok)
	}
	if _, ok := parseStat([]byte("nonsense")); ok {
		t.Error("nonsense was read")
	}
	got := parseTimes("cpu  100 10 50 800 20 5 5 10 7 0")
	if got.busy != 1700*time.Millisecond || got.steal != 100*time.Millisecond || got.total != 10*time.Second {
		t.Errorf("%+v", got)
	}
	table := parseTable([]byte("Ip: A B\nIp: 1 2\nTcp: RetransSegs InErrs\nTcp: 7 8\n"), "Tcp:")
	if table["RetransSegs"] != 7 || table["InErrs"] != 8 || len(table) != 2 {
		t.Errorf("%v", table)
	}
}

func TestDescribe(t *testing.T) {
	env := Describe()
	if env.Boot == "" || env.Cores < 1 || env.Memory < 1<<28 || env.Kernel == "" || env.Go == "" || env.Kernels["net/core/somaxconn"] == "" {
		t.Errorf("%+v", env)
	}
}
