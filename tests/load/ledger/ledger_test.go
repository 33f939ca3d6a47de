package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{
		ID: "r-1", MessageID: "0190", Outcome: Accepted, Sender: "a@b", Recipients: []string{"c@d"}, Rejected: []string{"e@f"},
		Reply: "250 2.0.0 Ok <x> & y", Size: 7, Start: time.Unix(1, 5).UTC(), End: time.Unix(2, 0).UTC(),
	}
	if err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	// It must be there before Close: a killed process does not close.
	got, err := Read[Entry](path)
	if err != nil || len(got) != 1 {
		t.Fatalf("read %d records, %v", len(got), err)
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Write(want); err == nil {
		t.Error("a write to a closed ledger is no error")
	}
}

func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	var wg sync.WaitGroup
	for p := range 2 { // two processes may share a file
		w, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // written through
		for g := range 4 {
			wg.Go(func() {
				for i := range 100 {
					if err := w.Write(Arrival{ID: fmt.Sprintf("%d-%d-%d", p, g, i), Reply: 250}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	got, err := Read[Arrival](path)
	ids := map[string]bool{}
	for _, a := range got {
		ids[a.ID] = a.Accepted()
	}
	if err != nil || len(got) != 800 || len(ids) != 800 {
		t.Errorf("%d records with %d ids, %v, want 800", len(got), len(ids), err)
	}
}

func TestReadWhatAKilledWriterLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"id":"a"}` + "\n" + `{"id":"b`)
	if got, err := Read[Entry](path); err != nil || len(got) != 1 || got[0].ID != "a" {
		t.Errorf("with a torn last line: %v %v", got, err)
	}
	write(`{"id":"a"}` + "\n" + `{"id":` + "\n" + `{"id":"c"}` + "\n")
	if _, err := Read[Entry](path); err == nil {
		t.Error("a broken line in the middle is no error")
	}
	if _, err := Read[Entry](path + "x"); err == nil {
		t.Error("a missing file is no error")
	}
}
