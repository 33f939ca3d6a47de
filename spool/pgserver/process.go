package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockPatience is how long a start waits for another server to leave the folder. One that is in its shutdown, as a dead
// process of ours leaves it behind, may take longer: its checkpoint does, on a disk that is slow or busy.
const lockPatience = 5 * time.Second

// process is one run of the postmaster.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended and its output was read
	log  *logWriter
}

// signal sends a signal to the postmaster; one that has ended already is no error.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("pgserver: stopping the server: %w", err)
	}
	return nil
}

// launch starts the postmaster and waits until it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	if err := s.waitForLock(ctx); err != nil {
		return err
	}
	p, err := s.spawn(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid, state := readLock(s.dir); pid == p.pid && state == stateReady {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("pgserver: the server ended while starting on %s: %s", s.dir, p.log.tail())
		case <-ctx.Done():
			_ = p.signal(syscall.SIGQUIT)
			<-p.done
			return fmt.Errorf("pgserver: the server on %s was not ready in time (%w): %s", s.dir, ctx.Err(), p.log.tail())
		case <-tick.C:
		}
	}
}

// spawn starts the postmaster from a goroutine that keeps its thread until the postmaster has ended: the kernel's
// parent-death signal follows the thread, not the process.
func (s *Server) spawn(ctx context.Context) (*process, error) {
	p := &process{done: make(chan struct{}), log: &logWriter{logger: s.cfg.Logger}}
	started := make(chan error, 1)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.binaries.path("postgres"), s.arguments()...) //nolint:gosec // our own arguments
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.WaitDelay = 5 * time.Second
	s.owner.dress(cmd)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log tells more than the exit code
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("pgserver: starting the server: %w", err)
	}
	return p, nil
}

func (s *Server) arguments() []string {
	settings := map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"log_destination": "stderr", "logging_collector": "off", "log_line_prefix": "",
		"max_connections": "200",
	}
	maps.Copy(settings, s.cfg.Settings)
	// What the package relies on comes last, so that nothing overrides it.
	settings["listen_addresses"] = ""
	settings["port"] = port
	settings["unix_socket_directories"] = quoteList(s.socketDir)
	settings["unix_socket_permissions"] = "0700"
	args := []string{"-D", s.dir}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// quoteList quotes a path as one element of a list setting.
func quoteList(path string) string { return `"` + strings.ReplaceAll(path, `"`, `""`) + `"` }

// waitForLock sees that no other server runs on the folder, and takes away the lock file of one that has died if its
// process number has been given to a stranger since: PostgreSQL would take the stranger for a server.
func (s *Server) waitForLock(ctx context.Context) error {
	deadline := time.Now().Add(lockPatience)
	for {
		pid, state := readLock(s.dir)
		if pid <= 0 || !alive(pid) {
			return nil // PostgreSQL itself removes the file of a dead process
		}
		if used, known := usesFolder(s.dir); known && !used {
			s.cfg.Logger.WarnContext(ctx, "removing the lock file of a dead server", "folder", s.dir, "pid", pid)
			if err := os.Remove(lockFile(s.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("pgserver: %w", err)
			}
			return nil
		}
		if state == stateStopping {
			deadline = time.Now().Add(lockPatience) // the context bounds it
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pgserver: another PostgreSQL server (process %d) runs on the data folder %s; stop it (kill -INT %d) or name another folder",
				pid, s.dir, pid)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pgserver: another PostgreSQL server (process %d) on the data folder %s does not end (%w)", pid, s.dir, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

func lockFile(dir string) string { return filepath.Join(dir, "postmaster.pid") }

// The states that a server writes into its lock file. (PostgreSQL, pidfile.h, PM_STATUS_*.)
const (
	stateReady    = "ready"
	stateStopping = "stopping"
)

// readLock tells whose lock file lies in a folder (0 if there is none), and that server's state. The process number stands
// in the first line, the state in the eighth. (PostgreSQL, pidfile.h, LOCK_FILE_LINE_*.)
func readLock(dir string) (pid int, state string) {
	content, err := os.ReadFile(lockFile(dir))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(content), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return 0, ""
	}
	if len(lines) >= 8 {
		state = strings.TrimSpace(lines[7])
	}
	return pid, state
}
