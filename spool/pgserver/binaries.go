package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// minVersion is the oldest PostgreSQL that the schema runs on.
const minVersion = 14

// installHint is the one line that mends a machine without PostgreSQL.
const installHint = "apt-get install -y postgresql   (macOS: brew install postgresql@17)"

// binaries is a folder with the programs of one PostgreSQL version.
type binaries struct {
	dir   string
	major int
	full  string // such as 15.14
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// binaryDirs are the places where packages put the server's programs, as patterns of filepath.Glob. Debian keeps them out
// of PATH so that several versions can live side by side.
var binaryDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/lib64/pgsql*/bin",
	"/usr/pgsql-*/bin",
	"/usr/local/pgsql/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findBinaries finds the programs for a data folder of a major version, or for a new one if version is 0.
func findBinaries(ctx context.Context, cfg Config, version int) (binaries, error) {
	if cfg.Binaries != "" {
		b, err := inspect(ctx, cfg.Binaries)
		if err != nil {
			return binaries{}, err
		}
		if found := choose([]binaries{b}, version); found != nil {
			return *found, nil
		}
		return binaries{}, mismatch(cfg.Dir, version, []binaries{b})
	}
	all := installed(ctx)
	if found := choose(all, version); found != nil {
		return *found, nil
	}
	fetched, err := fetchBinaries(ctx, cfg, version)
	if err == nil {
		return fetched, nil
	}
	if len(all) > 0 {
		return binaries{}, mismatch(cfg.Dir, version, all)
	}
	return binaries{}, fmt.Errorf("pgserver: no PostgreSQL server was found on this machine and none could be fetched (%w); install it: %s",
		err, installHint)
}

// choose gives the newest of those that suit a data folder of a version, or nil.
func choose(all []binaries, version int) *binaries {
	fit := slices.DeleteFunc(slices.Clone(all), func(b binaries) bool {
		return version != 0 && b.major != version || b.major < minVersion
	})
	if len(fit) == 0 {
		return nil
	}
	newest := slices.MaxFunc(fit, func(a, b binaries) int { return cmp.Compare(a.major, b.major) })
	return &newest
}

func mismatch(dir string, version int, all []binaries) error {
	var have []string
	for _, b := range all {
		have = append(have, b.full+" in "+b.dir)
	}
	if version == 0 {
		return fmt.Errorf("pgserver: PostgreSQL %d or newer is needed, but only %s was found; install it: %s",
			minVersion, strings.Join(have, ", "), installHint)
	}
	return fmt.Errorf("pgserver: the data folder %s was made by PostgreSQL %d, but only PostgreSQL %s was found; "+
		"install version %d (apt-get install -y postgresql-%d), or dump it with that version (pg_dumpall) and restore it into a new folder",
		dir, version, strings.Join(have, ", "), version, version)
}

// installed lists what is on the machine, PATH first.
func installed(ctx context.Context) []binaries {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for _, pattern := range binaryDirs {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern
		}
		dirs = append(dirs, found...)
	}
	var all []binaries
	for _, dir := range dirs {
		if b, err := inspect(ctx, dir); err == nil && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}

var versionPattern = regexp.MustCompile(`PostgreSQL\) ((\d+)[^\s]*)`)

// inspect asks the programs of a folder for their version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	b := binaries{dir: dir}
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(b.path(name)); err != nil {
			return binaries{}, fmt.Errorf("pgserver: %s is no folder of PostgreSQL programs: %w", dir, err)
		}
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output() //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return binaries{}, fmt.Errorf("pgserver: running %s: %w", b.path("postgres"), err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return binaries{}, fmt.Errorf("pgserver: %s does not tell its version: %q", b.path("postgres"), out)
	}
	b.full = string(match[1])
	b.major, err = strconv.Atoi(string(match[2]))
	return b, err
}

// dataVersion tells the major version that made a data folder, 0 if it is new.
func dataVersion(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "PG_VERSION")) //nolint:gosec // the folder is the operator's choice
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("pgserver: %w", err)
	}
	version, err := strconv.Atoi(string(bytes.TrimSpace(content)))
	if err != nil {
		return 0, fmt.Errorf("pgserver: %s/PG_VERSION is not a version: %q", dir, content)
	}
	return version, nil
}
