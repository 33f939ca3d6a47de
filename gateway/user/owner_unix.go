//go:build unix

package user

import (
	"io/fs"
	"os"
	"syscall"
)

// giveTo makes the owner and the group of another file those of f.
func giveTo(f *os.File, other fs.FileInfo) error {
	stat, ok := other.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}
