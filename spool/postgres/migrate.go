package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose uses
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/rohrpost/rohrpost/spool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the database's schema does not suit this program.
var ErrSchema = errors.New("postgres: the schema does not suit this program")

// Migrate brings the schema of a database up to this program's. Several processes may do so at once.
func Migrate(ctx context.Context, url string) (err error) {
	if err := refuseNewer(ctx, url); err != nil {
		return err
	}
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("postgres: the database URL can't be read: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, folder,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("postgres: migrating the schema: %w", err)
	}
	return nil
}

// CheckSchema tells whether the schema of a database is this program's. The error wraps [ErrSchema] and names the mend
// if it is not.
func CheckSchema(ctx context.Context, url string) error {
	have, err := schemaVersion(ctx, url)
	if err != nil {
		return err
	}
	want := programVersion()
	if have < want {
		return fmt.Errorf("%w: it has version %d, the program needs %d; run: rohrpost migrate", ErrSchema, have, want)
	}
	return newer(have, want)
}

func refuseNewer(ctx context.Context, url string) error {
	have, err := schemaVersion(ctx, url)
	if err != nil {
		return err
	}
	return newer(have, programVersion())
}

func newer(have, want int64) error {
	if have <= want {
		return nil
	}
	return fmt.Errorf("%w: it has version %d, but this program knows only up to %d; run the newer program that made it, "+
		"or restore a backup from before", ErrSchema, have, want)
}

// programVersion is the number of the last embedded migration.
func programVersion() int64 {
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0 // can't be: the folder is embedded
	}
	var last int64
	for _, entry := range entries {
		if n, err := goose.NumericComponent(entry.Name()); err == nil {
			last = max(last, n)
		}
	}
	return last
}

// schemaVersion is 0 for a database without our tables.
func schemaVersion(ctx context.Context, url string) (int64, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return 0, fmt.Errorf("postgres: the database URL can't be read: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", spool.ErrUnavailable, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&exists); err != nil || !exists {
		return 0, classify(err)
	}
	var version int64
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&version)
	return version, classify(err)
}
