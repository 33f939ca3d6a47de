//go:build unix

package gateway

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const canReusePort = true

// reusePort lets other sockets listen at the same address.
func reusePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}

// maxOpenFiles is the limit of open files that is in force; the Go runtime has raised it to the hard one by now.
func maxOpenFiles() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err //nolint:unconvert // signed on some systems
}
