//go:build processes

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/smtp"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// terminal makes a pseudo-terminal. Closing the first end closes the terminal.
func terminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, tty
}

// `up` in a terminal loads its configuration again by SIGHUP, and still ends with its terminal.
func TestHangupOfUp(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := rohrtest.TempDir(t)
	config := filepath.Join(dir, "rohrpost.yaml")
	configure := func(size int) {
		if err := os.WriteFile(config, fmt.Appendf(nil, "gateway: {max_size: %d}\n", size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(111_111)
	keyboard, tty := terminal(t)
	// Whoever runs the tests by nohup has them ignore the signal, and a process that is started so goes on by intent.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	var log lines
	addr := freePort(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "up", "--config", config, "--data", filepath.Join(dir, "data"),
		"--smtp", addr, "--http", freePort(t), "--grpc", freePort(t), "--json", freePort(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close() // the process has it
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // by whatever it ends
	}()
	size := func() string {
		c, err := smtp.Dial(addr)
		if err != nil {
			return ""
		}
		defer c.Close() //nolint:errcheck // only to end it
		_, limit := c.Extension("SIZE")
		return limit
	}
	until := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(rohrtest.Patience); size() != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("a session may never send %s octets\n%s", want, log.String())
			}
		}
	}
	until("111111")
	configure(222_222)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("222222")
	if strings.Contains(log.String(), "next start") {
		t.Errorf("something is put off that has not changed:\n%s", log.String())
	}
	_ = keyboard.Close() // which closes the terminal
	select {
	case <-exited:
	case <-time.After(rohrtest.Patience):
		_ = cmd.Process.Kill()
		t.Errorf("it goes on without its terminal\n%s", log.String())
	}
}

// lines collects what a process writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
