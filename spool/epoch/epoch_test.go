package epoch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/epoch"
)

func TestFile(t *testing.T) {
	f := epoch.File(filepath.Join(t.TempDir(), "epochs"))
	if got, err := f.Load(); got != nil || err != nil {
		t.Fatalf("before it is written: %v, %v", got, err)
	}
	want := []spool.Epoch{{Incarnation: 7, ID: uuid.New(), Time: time.Now().UTC()}}
	for range 2 { // it is replaced
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil {
		t.Error("a damaged file was read")
	}
	if _, err := epoch.File(filepath.Join(t.TempDir(), "no", "epochs")).Load(); err != nil {
		t.Error(err)
	}
	if err := epoch.File(filepath.Join(t.TempDir(), "no", "epochs")).Save(want); err == nil {
		t.Error("it was written to a folder that is not there")
	}
}
