//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside says that the program runs in namespaces of its own already.
const inside = "ROHRCHAOS_INSIDE"

// Inside tells whether this process may start a cluster; if not, [Enter] runs it again so that it may.
func Inside() bool { return os.Getenv(inside) != "" }

// Enter runs this program again with arguments in namespaces of its own for the network, mounts and processes, and returns
// its exit code. All that it starts ends with it, and it by force when ctx ends. Who is not root becomes so in a user namespace, where the kernel allows
// that.
func Enter(ctx context.Context, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("making namespaces: %w (run it as root, or allow user namespaces to users)", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig)
		}
	}()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return 1, fmt.Errorf("it was ended by force: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Settle makes the mounts of this process its own: what happens in them is seen by nobody else. It is called once, inside.
func Settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from the mounts of others: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// `ip netns` keeps its names below /run.
	if err := unix.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	return nil
}
