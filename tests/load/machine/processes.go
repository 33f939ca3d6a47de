package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// process is a process as /proc tells it.
type process struct {
	pid, parent int
	name        string
	cpu         time.Duration // its own and that of children that it has waited for
	kernel      bool          // a thread of the kernel
}

// processes lists all processes. One that ends meanwhile is left out.
func processes() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	all := make(map[int]process, len(entries))
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(stat); ok {
			all[pid] = p
		}
	}
	return all, nil
}

// parseStat reads /proc/PID/stat. (proc(5).)
func parseStat(stat []byte) (process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	words := strings.Fields(string(stat[end+1:]))
	if err != nil || len(words) < 15 {
		return process{}, false
	}
	p := process{pid: pid, name: string(stat[open+1 : end])}
	p.parent, _ = strconv.Atoi(words[1]) // 0 where it is no number
	p.kernel = pid == 2 || p.parent == 2
	for _, word := range words[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(word, 10, 64) // 0 where it is no number
		p.cpu += time.Duration(n) * tick
	}
	return p, true
}

// family is every process that descends from a root, the root included.
func family(all map[int]process, roots ...int) []process {
	var members []process
	for pid, p := range all {
		for at, hops := pid, 0; hops < 100; hops++ {
			if contains(roots, at) {
				members = append(members, p)
				break
			}
			parent, ok := all[at]
			if !ok || parent.parent == 0 {
				break
			}
			at = parent.parent
		}
	}
	return members
}

func contains(pids []int, pid int) bool {
	for _, p := range pids {
		if p == pid {
			return true
		}
	}
	return false
}

// pss is a process's proportional set size in octets: pages that several processes share count by their share, so that a sum
// over processes counts none twice. It is 0 where it can't be read.
func pss(pid int) int64 {
	kb, _, found := strings.Cut(field("/proc/"+strconv.Itoa(pid)+"/smaps_rollup", "Pss"), " ")
	if !found {
		return 0
	}
	n, err := strconv.ParseInt(kb, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// times are the machine's CPU times since its start, over all cores.
type times struct{ busy, steal, total time.Duration }

func readTimes() times {
	line, _, _ := strings.Cut(text("/proc/stat"), "\n")
	return parseTimes(line)
}

// parseTimes reads the first line of /proc/stat. Guest times are part of user's already.
func parseTimes(line string) times {
	var t times
	words := strings.Fields(line)
	for i := 1; i < min(len(words), 9); i++ {
		n, _ := strconv.ParseInt(words[i], 10, 64) // 0 where it is no number
		d := time.Duration(n) * tick
		t.total += d
		switch i {
		case 4, 5: // idle, iowait
		case 8:
			t.steal += d
		default:
			t.busy += d
		}
	}
	return t
}
