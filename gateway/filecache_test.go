package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What could not be loaded, as for want of open files, is tried again, though the files have not changed; each state of them
// is warned of once.
func TestFileCacheTriesAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	var fault error
	warned := 0
	c, err := newFileCache([]string{file}, func() (string, error) {
		data, err := os.ReadFile(file)
		return string(data), errors.Join(fault, err)
	}, func(error) { warned++ })
	if err != nil {
		t.Fatal(err)
	}
	want := func(value string, warnings int) {
		t.Helper()
		c.looked = time.Time{} // a second has passed
		if got := c.get(); got != value || warned != warnings {
			t.Errorf("got %q and %d warnings, want %q and %d", got, warned, value, warnings)
		}
	}
	write("more")
	fault = errors.New("no file is left to open")
	want("a", 1)
	want("a", 1)
	write("even more")
	want("a", 2)
	fault = nil
	want("even more", 2)
	fault = errors.New("is not asked for")
	want("even more", 2)
}
