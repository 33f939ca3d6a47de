package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The files of a database's password: the bare word, as POSTGRES_PASSWORD_FILE of PostgreSQL's image wants it, and the
// form of PGPASSFILE.
const (
	passwordFile = "password"
	pgpassFile   = "pgpass"
)

// MakeDatabasePassword makes a random password in a folder, unless there is one, and tells whether it did. PostgreSQL
// and the spool read it under users of their own, so it is the folder that must be kept from others; the files have
// mode 0444.
func MakeDatabasePassword(dir string) (bool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above: the folder is given to two users
		return false, Usage("database password: %w; choose a folder that can be written", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, passwordFile)) //nolint:gosec // a fixed name in the folder that the user named
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("database password: %w", err)
	}
	made := err != nil
	password := strings.TrimSpace(string(data))
	if made {
		password = rand.Text()
	}
	// pgpass comes first: a crash between the two leaves no password, and both are made again.
	line := "*:*:*:*:" + strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(password) + "\n"
	if err := writeNew(filepath.Join(dir, pgpassFile), []byte(line), 0o444); err != nil {
		return false, fmt.Errorf("writing the database password: %w", err)
	}
	if !made {
		return false, nil
	}
	if err := writeNew(filepath.Join(dir, passwordFile), []byte(password+"\n"), 0o444); err != nil {
		return false, fmt.Errorf("writing the database password: %w", err)
	}
	return true, nil
}
