//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is a file system in memory, which takes no more of it than what is written.
type disk struct{ path string }

func newDisk(path string, mib int) (*disk, error) {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // whoever writes to it gets a folder of his own in it
		return nil, err
	}
	if err := unix.Mount("chaos", path, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=755", mib)); err != nil {
		return nil, fmt.Errorf("mounting a disk at %s: %w", path, err)
	}
	return &disk{path: path}, nil
}

func (d *disk) filler() string { return filepath.Join(d.path, "filler") }

// fill takes all the room that is left.
func (d *disk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer f.Close()
	var size int64
	for piece := int64(64 << 20); piece >= 4<<10; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, piece); {
		case errors.Is(err, unix.ENOSPC):
			piece /= 4
		case err != nil:
			return fmt.Errorf("filling %s: %w", d.path, err)
		default:
			size += piece
		}
	}
	return nil
}

func (d *disk) free(context.Context) error { return os.Remove(d.filler()) }

func (d *disk) unmount() { _ = unix.Unmount(d.path, unix.MNT_DETACH) }
