//go:build unix

package user_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rohrpost/rohrpost/gateway/user"
)

// A gateway that is not root still reads its file once root has added a user.
func TestAddKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "users")
	if err := user.Add(path, "ann@a.test", "secret", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65533); err != nil {
		t.Fatal(err)
	}
	if err := user.Add(path, "bob@a.test", "secret", nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 65534 || s.Gid != 65533 {
		t.Errorf("the file is %d:%d's", s.Uid, s.Gid)
	}
}
