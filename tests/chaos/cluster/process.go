//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// Process is a program that is kept running, as a service manager would: if it ends by itself it is started again. Its
// methods may be called concurrently, but only one fault at a time.
type Process struct {
	Name string // of the node
	Word string // of the service

	node *node
	args []string
	env  []string
	user *syscall.SysProcAttr // whom it runs as; nil for the caller
	log  string
	note func(node, how string)

	mu     sync.Mutex
	wanted bool
	cmd    *exec.Cmd
	exited chan struct{} // of cmd
}

// restartDelay is how long a process that ended by itself waits.
const restartDelay = 300 * time.Millisecond

// Start starts the process, where it does not run, and keeps it running.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	if p.cmd != nil {
		select {
		case <-p.exited:
		default:
			return nil // a second one would fight with it for its port
		}
	}
	return p.launch()
}

// launch starts the process. The lock is held.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // a log of this run
	if err != nil {
		return err
	}
	defer log.Close()
	_, _ = fmt.Fprintf(log, "=== %s starts at %s\n", p.Name, time.Now().Format("15:04:05.000"))
	cmd := exec.Command(p.args[0], p.args[1:]...) //nolint:gosec,noctx // the cluster's own words; ended by faults and Stop
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr, cmd.Dir = p.env, log, log, p.user, "/"
	if err := p.node.within(cmd.Start); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go p.await(cmd, exited)
	return nil
}

// await waits for the end of a process, and starts another where nobody asked for that end.
func (p *Process) await(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	close(exited)
	for p.misses(cmd) {
		how := "exit status 0"
		if err != nil {
			how = err.Error()
		}
		p.note(p.Name, how)
		time.Sleep(restartDelay)
		if err = p.replace(cmd); err == nil {
			return
		}
	}
}

// misses tells whether a process that has ended is wanted still, and not replaced yet.
func (p *Process) misses(cmd *exec.Cmd) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted && p.cmd == cmd
}

// replace starts the process in place of one that has ended, unless a fault has decided otherwise meanwhile.
func (p *Process) replace(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.cmd != cmd {
		return nil
	}
	return p.launch()
}

// current is the process as it runs now, and is told to be wanted no more where that is said.
func (p *Process) current(unwanted bool) (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if unwanted {
		p.wanted = false
	}
	return p.cmd, p.exited
}

// fault does to the process what a kind of fault says, and returns what undoes it.
func (p *Process) fault(kind schedule.Kind) (undo func(context.Context) error, err error) {
	start := func(context.Context) error { return p.Start() }
	switch kind {
	case schedule.Kill:
		p.kill()
		return start, nil
	case schedule.Immediate:
		p.signal(syscall.SIGQUIT)
		return start, nil
	case schedule.Restart:
		return start, p.Stop()
	case schedule.Pause:
		pids := p.tree()
		sendAll(pids, syscall.SIGSTOP)
		return func(context.Context) error { sendAll(pids, syscall.SIGCONT); return nil }, nil
	default:
		return nil, fmt.Errorf("%s is no fault of a process", kind)
	}
}

// kill ends the process, and what it has started, by SIGKILL.
func (p *Process) kill() {
	_, exited := p.current(true)
	sendAll(p.tree(), syscall.SIGKILL)
	<-exited
}

// signal ends the process by a signal and waits for its end; false where it had to be killed.
func (p *Process) signal(sig syscall.Signal) bool {
	cmd, exited := p.current(true)
	_ = cmd.Process.Signal(sig)
	select {
	case <-exited:
		return true
	case <-time.After(gracePatience):
		p.kill()
		return false
	}
}

// Stop asks the process to end and waits for that. It is an error if it does not within its time.
func (p *Process) Stop() error {
	sig := syscall.SIGTERM
	if p.Word == schedule.Postgres {
		sig = syscall.SIGINT // a fast shutdown
	}
	if !p.signal(sig) {
		return fmt.Errorf("%s did not stop within %s of a signal", p.Name, gracePatience)
	}
	return nil
}

// Files counts what the process has open, by kind: socket, pipe, anon_inode, file.
func (p *Process) Files() (map[string]int, error) {
	cmd, _ := p.current(false)
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	kinds := map[string]int{}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // it was closed meanwhile
		}
		kind, _, special := strings.Cut(target, ":")
		if !special {
			kind = "file"
		}
		kinds[kind]++
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("%s has nothing open: it does not run", p.Name)
	}
	return kinds, nil
}

// Dump makes the process tell its goroutines and end (SIGQUIT), and returns what it said. It is not started again.
func (p *Process) Dump() (string, error) {
	before, err := os.Stat(p.log)
	if err != nil {
		return "", err
	}
	if !p.signal(syscall.SIGQUIT) {
		return "", fmt.Errorf("%s did not end on SIGQUIT", p.Name)
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	return string(text[before.Size():]), nil
}

// Log is all that the process has written, since its first start.
func (p *Process) Log() (string, error) {
	text, err := os.ReadFile(p.log)
	return string(text), err
}

// tree lists the process and all that it has started.
func (p *Process) tree() []int {
	cmd, exited := p.current(false)
	select {
	case <-exited:
		return nil
	default:
	}
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, parent, ok := readStat(path)
		if ok {
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// readStat reads a process's number and that of its parent. The name in parentheses may hold anything. (proc(5).)
func readStat(path string) (pid, parent int, ok bool) {
	text, err := os.ReadFile(path) //nolint:gosec // below /proc
	if err != nil {
		return 0, 0, false
	}
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 2 {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	parent, err2 := strconv.Atoi(fields[1])
	return pid, parent, errors.Join(err1, err2) == nil
}

func sendAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // one that has ended meanwhile is past signals
	}
}
