package pgserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// rootBase is where data folders lie for root if the server's user can't reach the folder that was asked for.
const rootBase = "/var/lib/rohrpost"

// owner is the user that the server runs as if we are root: PostgreSQL refuses to run as root. A nil owner stands for
// our own user.
type owner struct {
	name     string
	uid, gid uint32
}

func serverOwner() (*owner, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nil is our own user
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		return &owner{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("pgserver: PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as")
}

// give makes a path the owner's.
func (o *owner) give(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("pgserver: giving %s to user %s: %w", path, o.name, err)
	}
	return nil
}

// giveTree makes a whole data folder the owner's, for example one that was copied by root.
func (o *owner) giveTree(dir string) error {
	if o == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = o.give(path)
		}
		// A server that is about to end takes its lock file away.
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
}

// dress makes a command run as the owner, in a process group of its own so that a terminal's Ctrl-C does not reach it.
func (o *owner) dress(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	dieWithParent(cmd.SysProcAttr)
}

// prepareDir makes the data folder and sees that the server's user can reach it. It returns its real path.
func prepareDir(ctx context.Context, cfg Config, own *owner) (string, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // the server's user must get through
		return "", fmt.Errorf("pgserver: making the data folder: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	} else if parent, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(parent, filepath.Base(dir))
	}
	if blocked := own.blockedBy(filepath.Dir(dir)); blocked != "" {
		if dir, err = moveAside(ctx, cfg, own, dir, blocked); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("pgserver: making the data folder: %w", err)
	}
	if err := checkContents(dir); err != nil {
		return "", err
	}
	return dir, own.giveTree(dir)
}

// checkContents refuses a folder that holds something else than a data folder: initdb would refuse it as well, but we
// would have given all of it to another user first.
func checkContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); len(entries) > 0 && err != nil {
		return fmt.Errorf("pgserver: %s is neither empty nor a PostgreSQL data folder; name another folder", dir)
	}
	return nil
}

// blockedBy names the first folder on the way to a path that the owner can't pass; empty if there is none.
func (o *owner) blockedBy(path string) string {
	if o == nil {
		return ""
	}
	for _, dir := range ancestors(path) {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		mode := info.Mode().Perm() & 0o001
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case stat.Uid == o.uid:
				mode = info.Mode().Perm() & 0o100
			case stat.Gid == o.gid:
				mode = info.Mode().Perm() & 0o010
			}
		}
		if mode == 0 {
			return dir
		}
	}
	return ""
}

// ancestors lists a path and all folders above it, from the root down.
func ancestors(path string) []string {
	all := []string{path}
	for parent := filepath.Dir(path); parent != all[0]; parent = filepath.Dir(parent) {
		all = append([]string{parent}, all...)
	}
	return all
}

// moveAside puts the data of a folder that the server's user can't reach (below /root, mostly) into a folder below
// rootBase and leaves a symbolic link, so that the next start finds it again.
func moveAside(ctx context.Context, cfg Config, own *owner, dir, blocked string) (string, error) {
	mend := fmt.Errorf("pgserver: the server runs as user %s, which can't enter %s; let it pass (chmod o+x %s) or name another data folder",
		own.name, blocked, blocked)
	if _, err := os.Lstat(dir); err == nil {
		return "", mend // there is something already: nothing is moved behind anyone's back
	}
	if isBelow(dir, os.TempDir()) {
		return "", mend // a temporary folder's data must go with it
	}
	sum := sha256.Sum256([]byte(dir))
	aside := filepath.Join(rootBase, "postgres-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(rootBase, 0o711); err != nil { //nolint:gosec // the server's user must get through
		return "", errors.Join(mend, err)
	}
	if err := os.Symlink(aside, dir); err != nil {
		return "", errors.Join(mend, err)
	}
	cfg.Logger.WarnContext(ctx, "the server's user can't reach the data folder: a link leads to another",
		"user", own.name, "blocked_by", blocked, "folder", dir, "instead", aside)
	return aside, nil
}

func isBelow(path, base string) bool {
	rel, err := filepath.Rel(base, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
