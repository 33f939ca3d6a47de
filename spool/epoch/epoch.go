// Package epoch keeps a spool's epochs in a file, outside the database: by them the spool notices that the database has
// gone back in time, as after a restored backup.
package epoch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rohrpost/rohrpost/spool"
)

// File is the path of a file of epochs. It is a [spool.EpochKeeper].
type File string

// Load reads the epochs; none where the file is not there yet.
func (f File) Load() ([]spool.Epoch, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading epochs: %w", err)
	}
	var epochs []spool.Epoch
	if err := json.Unmarshal(data, &epochs); err != nil {
		return nil, fmt.Errorf("reading epochs from %s: %w (take the file away if no backup was restored)", f, err)
	}
	return epochs, nil
}

// Save replaces the file in one step, and returns when it would outlive a crash.
func (f File) Save(epochs []spool.Epoch) error {
	data, err := json.MarshalIndent(epochs, "", "  ")
	if err != nil {
		return fmt.Errorf("writing epochs: %w", err)
	}
	dir := filepath.Dir(string(f))
	tmp, err := os.CreateTemp(dir, ".epochs-*")
	if err != nil {
		return fmt.Errorf("writing epochs: %w", err)
	}
	_, err = tmp.Write(append(data, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), string(f))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("writing epochs: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator named it
	if err != nil {
		return fmt.Errorf("writing epochs: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
