package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Usage is what happened on the machine while it was watched.
type Usage struct {
	Wall        float64          `json:"wall_s"`
	Groups      map[string]Group `json:"groups"`
	Busy        float64          `json:"busy"`    // share of all cores that was used, 0 to 1
	Steal       float64          `json:"steal"`   // share that the hypervisor took
	Foreign     float64          `json:"foreign"` // share that processes of no group used; it counts where groups were named
	Overflows   int64            `json:"listen_overflows"`
	Drops       int64            `json:"listen_drops"`
	Segments    int64            `json:"segments"` // that TCP sent, on all connections of the machine
	Retransmits int64            `json:"retransmits"`
	// Contaminated says why the run's figures are not to be trusted; empty where nothing is against them.
	Contaminated []string `json:"contaminated,omitempty"`
}

// Group is what a group of processes used.
type Group struct {
	CPU       float64 `json:"cpu_s"`    // seconds of one core
	PeakPSS   int64   `json:"peak_pss"` // octets; the highest of the samples, one each second
	Processes int     `json:"processes"`
}

// Above these shares of the machine a run is contaminated.
const (
	maxForeign = 0.03
	maxSteal   = 0.02
)

// Watch is a watch under way.
type Watch struct {
	groups map[string][]int
	beside []int
	self   string
	spent0 time.Duration // by this process before the watch
	cost   time.Duration // of the watch itself, which reads the memory of every process
	begun  time.Time
	times  times
	net    counters
	first  map[int]process
	last   map[int]process
	peak   map[string]int64
	stop   chan struct{}
	done   sync.WaitGroup
}

// Start watches groups of processes, each named and given by roots whose descendants belong to it. A process of several groups
// counts in each. This process, without its children, is a group of its own where self names one; it is no foreigner in any
// case. Nor are the roots beside, which somebody else counts. Where neither groups nor others are named, nobody is a foreigner:
// who is measured is not known then.
func Start(groups map[string][]int, self string, beside ...int) (*Watch, error) {
	w := &Watch{groups: groups, beside: beside, self: self, spent0: ownCPU(), begun: time.Now(), times: readTimes(), peak: map[string]int64{}, stop: make(chan struct{})}
	var err error
	if w.net, err = readCounters(); err != nil {
		return nil, err
	}
	if w.first, err = processes(); err != nil {
		return nil, err
	}
	w.last = w.first
	w.sample()
	w.done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				w.sample()
			}
		}
	})
	return w, nil
}

// Around does something and tells what it cost. See [Start].
func Around(groups map[string][]int, self string, do func() error) (Usage, error) {
	watch, err := Start(groups, self)
	if err != nil {
		return Usage{}, err
	}
	err = do()
	usage, watchErr := watch.Stop()
	return usage, errors.Join(err, watchErr)
}

// sample notes memory, and processes that may be gone at the end.
func (w *Watch) sample() {
	runtime.LockOSThread() // so that the thread's time is ours
	defer runtime.UnlockOSThread()
	before := threadCPU()
	defer func() { w.cost += threadCPU() - before }()
	all, err := processes()
	if err != nil {
		return
	}
	w.last = merge(w.last, all, w.groups)
	for name, roots := range w.groups {
		var sum int64
		for _, p := range family(all, roots...) {
			sum += pss(p.pid)
		}
		w.peak[name] = max(w.peak[name], sum)
	}
	if w.self != "" {
		w.peak[w.self] = max(w.peak[w.self], pss(os.Getpid()))
	}
}

// ownCPU is what this process has used, without its children; threadCPU what this thread has.
func ownCPU() time.Duration    { return usedCPU(syscall.RUSAGE_SELF) }
func threadCPU() time.Duration { return usedCPU(rusageThread) }

const rusageThread = 1 // of Linux (getrusage(2))

func usedCPU(whose int) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(whose, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// merge keeps of the processes before those that have ended and whose time nobody else has: the parent that waited for one
// has it in its own, except that of a root, which is not of the group.
func merge(before, now map[int]process, groups map[string][]int) map[int]process {
	merged := make(map[int]process, len(now))
	for pid, p := range now {
		merged[pid] = p
	}
	for pid, p := range before {
		_, alive := now[pid]
		_, waited := now[p.parent]
		root := false
		for _, roots := range groups {
			root = root || contains(roots, pid)
		}
		if !alive && (!waited || p.parent == 1 || root) {
			merged[pid] = p
		}
	}
	return merged
}

// Stop ends the watch. The groups' roots must still run, or their CPU time since the last sample is lost.
func (w *Watch) Stop() (Usage, error) {
	close(w.stop)
	w.done.Wait()
	w.sample()
	wall := time.Since(w.begun)
	now := readTimes()
	net, err := readCounters()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{
		Wall: wall.Seconds(), Groups: map[string]Group{}, Overflows: net.overflows - w.net.overflows, Drops: net.drops - w.net.drops,
		Segments: net.segments - w.net.segments, Retransmits: net.retransmits - w.net.retransmits,
	}
	if total := now.total - w.times.total; total > 0 {
		u.Busy = share(now.busy-w.times.busy, total)
		u.Steal = share(now.steal-w.times.steal, total)
	}
	ours := append([]int{os.Getpid()}, w.beside...)
	for name, roots := range w.groups {
		cpu, processes := w.used(roots)
		u.Groups[name] = Group{CPU: cpu.Seconds(), PeakPSS: w.peak[name], Processes: processes}
		ours = append(ours, roots...)
	}
	if w.self != "" {
		u.Groups[w.self] = Group{CPU: max(0, ownCPU()-w.spent0-w.cost).Seconds(), PeakPSS: w.peak[w.self], Processes: 1}
	}
	names := w.foreign(ours, &u, now.total-w.times.total)
	w.judge(&u, names)
	return u, nil
}

// used is the CPU time of a group since the start of the watch. A process that has ended since is in the time of the parent
// that has waited for it, with all it had ever used: what was before the watch is taken off again.
func (w *Watch) used(roots []int) (cpu time.Duration, processes int) {
	for _, p := range family(w.last, roots...) {
		cpu += w.spent(p)
		processes++
	}
	for _, p := range family(w.first, roots...) {
		if now, ok := w.last[p.pid]; !ok || now.name != p.name {
			cpu -= p.cpu
		}
	}
	return max(0, cpu), processes
}

// spent is the CPU time of a process since the start of the watch. One that came later has spent all it has.
func (w *Watch) spent(p process) time.Duration {
	if before, ok := w.first[p.pid]; ok && before.name == p.name {
		return max(0, p.cpu-before.cpu)
	}
	return p.cpu
}

// foreign sums up what processes of no group used, and names the greatest. Kernel threads work for everybody.
func (w *Watch) foreign(ours []int, u *Usage, total time.Duration) []string {
	known := map[int]bool{}
	for _, p := range family(w.last, ours...) {
		known[p.pid] = true
	}
	byName := map[string]time.Duration{}
	var sum time.Duration
	for pid, p := range w.last {
		if known[pid] || p.kernel || ancestor(w.last, pid, ours[0]) {
			continue
		}
		if spent := w.spent(p); spent > 0 {
			byName[p.name] += spent
			sum += spent
		}
	}
	if total > 0 {
		// Of processes that came and went, some count twice, with a parent that waited for them: never more than the rest.
		u.Foreign = min(share(sum, total), max(0, u.Busy-u.ours()/total.Seconds()))
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return byName[names[i]] > byName[names[j]] })
	return names[:min(3, len(names))]
}

// ours is the CPU time of all groups in seconds.
func (u *Usage) ours() float64 {
	var sum float64
	for _, g := range u.Groups {
		sum += g.CPU
	}
	return sum
}

// ancestor tells whether a process has started the other, such as the shell that waits for it: its count of children's time
// has ours in it.
func ancestor(all map[int]process, pid, of int) bool {
	for at, hops := of, 0; hops < 100; hops++ {
		p, ok := all[at]
		if !ok {
			return false
		}
		if p.parent == pid {
			return true
		}
		at = p.parent
	}
	return false
}

// judge says what speaks against the figures.
func (w *Watch) judge(u *Usage, names []string) {
	if u.Foreign > maxForeign && len(w.groups)+len(w.beside) > 0 {
		u.Contaminated = append(u.Contaminated, fmt.Sprintf("other processes used %.0f %% of the CPU (%s)", 100*u.Foreign, strings.Join(names, ", ")))
	}
	if u.Steal > maxSteal {
		u.Contaminated = append(u.Contaminated, fmt.Sprintf("the hypervisor took %.0f %% of the CPU", 100*u.Steal))
	}
}

func share(part, whole time.Duration) float64 { return float64(part) / float64(whole) }
