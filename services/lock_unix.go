//go:build unix

package services

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lockFolder makes sure that only one process runs on a data folder. The lock goes with the process, however that ends.
func lockFolder(dir string) (io.Closer, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the user's own folder
	if err != nil {
		return nil, fmt.Errorf("data folder: %w (name another with --data)", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("data folder %s: another `rohrpost up` runs on it; stop that one, or name another folder with --data", dir)
	}
	return f, nil
}
