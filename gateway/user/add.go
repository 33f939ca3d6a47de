package user

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Add puts a user into a file, in place of the one of that name, and makes the file where there is none (0600). Other
// lines stay as they are. senders are patterns; none means the name itself.
func Add(path, name, password string, patterns []string) error {
	if !word(name) || strings.Contains(name, "\x00") || strings.HasPrefix(name, "#") {
		return fmt.Errorf("user %q: a name has no blanks and does not start with #", name)
	}
	for _, p := range patterns {
		if !word(p) {
			return fmt.Errorf("user %q: the pattern %q has blanks, which would end it in the file", name, p)
		}
	}
	if _, err := senders(name, patterns); err != nil {
		return err
	}
	data, err := os.ReadFile(path) //nolint:gosec // whoever adds users names the file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("users: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 0 || key(f[0]) != key(name) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	lines = append(lines, strings.Join(append([]string{name, Hash(password)}, patterns...), " "))
	return replace(path, []byte(strings.Join(lines, "\n")+"\n"))
}

// word tells whether a text is read back as one field of a line. Unicode has more blanks than ASCII.
func word(s string) bool {
	f := strings.Fields(s)
	return len(f) == 1 && f[0] == s
}

// replace writes a file such that nobody sees half of it. A file that is there keeps its mode and its owner: root may add users
// of a gateway that is not root.
func replace(path string, data []byte) error {
	mode := fs.FileMode(0o600)
	before, err := os.Stat(path)
	if err == nil {
		mode = before.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".users.*")
	if err != nil {
		return fmt.Errorf("users: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is gone where the rename went well
	_, err = tmp.Write(data)
	if before != nil {
		err = errors.Join(err, giveTo(tmp, before))
	}
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("users: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("users: %w", err)
	}
	return nil
}
