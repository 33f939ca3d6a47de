package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// smallDisk is a folder on a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := pgservertest.TempDir(t)
	if err := syscall.Mount("rohrpost-test", dir, "tmpfs", 0, "size=160m,mode=0711"); err != nil {
		t.Skipf("only root can make a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes what is left of a disk, and returns what gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// Case A5: on a full disk a batch is refused as for want of room, whole. What was committed before is there, and once there is
// room again, batches are committed again.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	url := server.URL("postgres")
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, url: url, store: openStore(t, url)}
	inc := f.register("a")
	committed := map[string]bool{}
	write := func() error {
		batch := &spool.Batch{}
		for range 50 {
			batch.Messages = append(batch.Messages, message(t, strings.Repeat("x", 6000)))
		}
		err := f.store.Commit(t.Context(), inc, batch)
		for _, m := range batch.Messages {
			committed[m.ID.String()] = err == nil
		}
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	free := fill(t, dir)
	full := write()
	for range 100 { // it may have had some room in its files
		if full != nil {
			break
		}
		full = write()
	}
	if !errors.Is(full, spool.ErrFull) {
		t.Errorf("got %v, want ErrFull", full)
	}
	free()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := write()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	there := map[string]bool{}
	for _, id := range f.sql("SELECT id::text FROM message") {
		there[id] = true
	}
	for id, want := range committed {
		if there[id] != want {
			t.Errorf("message %s: committed %v, there %v", id, want, there[id])
		}
	}
	f.audit()
}
