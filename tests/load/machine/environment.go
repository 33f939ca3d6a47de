// Package machine tells on what machine a load test ran and what it cost there: CPU and memory by group of processes, what
// the network lost, and whether anybody else used the CPU meanwhile. It reads Linux's /proc; elsewhere it fails.
package machine

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment is what figures depend on.
type Environment struct {
	Time    time.Time         `json:"time"`
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"`
	Memory  int64             `json:"memory"` // octets
	System  string            `json:"system"`
	Kernel  string            `json:"kernel"`
	Go      string            `json:"go"`
	Commit  string            `json:"commit,omitempty"` // of this program, with a + where files had been changed
	Boot    string            `json:"boot,omitempty"`   // what tells one machine, and one start of it, from another
	Data    string            `json:"data,omitempty"`   // the file system that servers keep their data on, where they were started
	Kernels map[string]string `json:"settings"`         // of the kernel, that bear on connections
	Others  map[string]string `json:"versions"`         // of other programs, by name
}

// settings of the kernel that bear on connections.
var settings = []string{"net/core/somaxconn", "net/ipv4/tcp_max_syn_backlog", "net/ipv4/ip_local_port_range", "net/ipv4/tcp_tw_reuse"}

// Describe reads the environment.
func Describe() Environment {
	env := Environment{
		Time: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(), Kernels: map[string]string{},
		Others: map[string]string{}, CPU: field("/proc/cpuinfo", "model name"), System: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`),
		Kernel: text("/proc/sys/kernel/osrelease"), Boot: text("/proc/sys/kernel/random/boot_id"),
	}
	if kb, _, found := strings.Cut(field("/proc/meminfo", "MemTotal"), " "); found {
		n, _ := strconv.ParseInt(kb, 10, 64) // 0 where it is unknown
		env.Memory = n << 10
	}
	for _, name := range settings {
		env.Kernels[name] = strings.Join(strings.Fields(text("/proc/sys/"+name)), " ")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		env.Commit = commit(info)
	}
	return env
}

// Commit is the commit that a Go program was built from, with a + where files had been changed; empty where that is not known.
func Commit(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return ""
	}
	return commit(info)
}

func commit(info *debug.BuildInfo) string {
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

// volatile are file systems that keep nothing: there an fsync costs nothing, and "durable" means nothing.
var volatile = []string{"tmpfs", "ramfs", "devtmpfs"}

// FileSystem tells what kind of file system a path lies on, such as ext4, and whether what is written there is gone with the
// machine's power. It is empty where that is not known.
func FileSystem(path string) (kind string, keepsNothing bool) {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", false
	}
	kind = fileSystem(text("/proc/self/mountinfo"), path)
	return kind, slices.Contains(volatile, kind)
}

// fileSystem finds the last mount point that a path is below. (proc_pid_mountinfo(5).)
func fileSystem(mounts, path string) string {
	kind, longest := "", -1
	for line := range strings.Lines(mounts) {
		mount, source, found := strings.Cut(line, " - ")
		words, types := strings.Fields(mount), strings.Fields(source)
		if !found || len(words) < 5 || len(types) < 1 {
			continue
		}
		point := strings.ReplaceAll(words[4], `\040`, " ")
		below := path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")
		if below && len(point) >= longest {
			kind, longest = types[0], len(point)
		}
	}
	return kind
}

// text is the content of a small file; empty where it can't be read.
func text(path string) string {
	content, err := os.ReadFile(path) //nolint:gosec // files of the system
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// field is the first value of a name in a file of lines `name: value` or `name=value`.
func field(path, name string) string {
	for line := range strings.Lines(text(path)) {
		i := strings.IndexAny(line, ":=")
		if i > 0 && strings.TrimSpace(line[:i]) == name {
			return strings.TrimSpace(line[i+1:])
		}
	}
	return ""
}

// counters are the network's, since the machine's start.
type counters struct {
	overflows, drops, segments, retransmits int64
}

func readCounters() (counters, error) {
	ext, err := table("/proc/net/netstat", "TcpExt:")
	if err != nil {
		return counters{}, err
	}
	tcp, err := table("/proc/net/snmp", "Tcp:")
	if err != nil {
		return counters{}, err
	}
	return counters{overflows: ext["ListenOverflows"], drops: ext["ListenDrops"], segments: tcp["OutSegs"], retransmits: tcp["RetransSegs"]}, nil
}

// table reads the two lines of a prefix, names and values.
func table(path, prefix string) (map[string]int64, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a file of the system
	if err != nil {
		return nil, fmt.Errorf("reading the network's counters: %w", err)
	}
	return parseTable(content, prefix), nil
}

func parseTable(content []byte, prefix string) map[string]int64 {
	var names []string
	values := map[string]int64{}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || words[0] != prefix:
		case names == nil:
			names = words
		default:
			for i := 1; i < min(len(words), len(names)); i++ {
				values[names[i]], _ = strconv.ParseInt(words[i], 10, 64) // 0 where it is no number
			}
			return values
		}
	}
	return values
}
