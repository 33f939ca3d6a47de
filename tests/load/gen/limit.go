package gen

import (
	"fmt"
	"syscall"
)

// RaiseFiles lets this process open at least n files: a session is one. The soft limit is at the hard one already, by the Go
// runtime; the hard one only root may raise.
func RaiseFiles(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if limit.Cur >= uint64(n) {
		return nil
	}
	want := syscall.Rlimit{Cur: uint64(n), Max: max(limit.Max, uint64(n))}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err != nil {
		return fmt.Errorf("raising the limit of open files from %d to %d: %w (ulimit -n, as root)", limit.Max, n, err)
	}
	return nil
}
