package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process is a process that was started for a measurement. It dies with this one.
type Process struct {
	Name   string
	cmd    *exec.Cmd
	log    tail
	exited chan struct{}
	err    error // how it ended; after exited
}

// tail keeps the end of what a process says, and how much CPU time the garbage collector took.
type tail struct {
	mu   sync.Mutex
	line []byte // begun
	text []byte
	gc   float64 // milliseconds of CPU, as GODEBUG=gctrace=1 tells
}

const tailSize = 16 << 10

// gcLine is a line of GODEBUG=gctrace=1; its CPU times are sweep termination, assists, background and idle marking, and mark
// termination. (Package runtime.)
var gcLine = regexp.MustCompile(`^gc \d+ @.* ms clock, ([0-9.]+)\+([0-9.]+)/([0-9.]+)/([0-9.]+)\+([0-9.]+) ms cpu`)

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for piece := range bytes.Lines(p) {
		t.line = append(t.line, piece...)
		if !bytes.HasSuffix(piece, []byte("\n")) {
			break
		}
		if m := gcLine.FindSubmatch(t.line); m != nil {
			for _, ms := range m[1:] {
				v, _ := strconv.ParseFloat(string(ms), 64) // digits by the expression
				t.gc += v
			}
		} else {
			t.text = append(t.text, t.line...)
		}
		t.line = t.line[:0]
	}
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// StartProcess starts a process. env is added to this process's environment.
func StartProcess(name string, env []string, binary string, args ...string) (*Process, error) {
	p := &Process{Name: name, exited: make(chan struct{})}
	p.cmd = exec.Command(binary, args...) //nolint:gosec,noctx // the caller's program; Stop ends it
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Log is the end of what it has said.
func (p *Process) Log() string {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return string(p.log.text)
}

// GC is the CPU time that the garbage collector took so far; it needs GODEBUG=gctrace=1.
func (p *Process) GC() time.Duration {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return time.Duration(p.log.gc * float64(time.Millisecond))
}

// Stop asks the process to end and waits for it; past the deadline of ctx it is killed.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("stopping %s: killed: %w\n%s", p.Name, ctx.Err(), p.Log())
	}
}

// CPU is what the process has used in all. It must have ended.
func (p *Process) CPU() time.Duration {
	<-p.exited
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Err is how the process ended; nil for an exit with 0. It must have ended.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}
