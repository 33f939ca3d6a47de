package parser

import (
	"bytes"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// TestReadersAreUsedAgain: a reader that has read other messages reads as a new one, and leaves their results as they are.
func TestReadersAreUsedAgain(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join("testdata", "*.msg"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d samples, %v", len(paths), err)
	}
	contents, want := make([][]byte, len(paths)), make([]*mailv1.ParsedMessage, len(paths))
	for i, path := range paths {
		contents[i] = readFile(t, path)
		r := &reader{noted: map[string]int{}}
		r.begin(Limits{}.withDefaults())
		if err := r.read(r.source(contents[i], false)); err != nil {
			t.Fatal(err)
		}
		want[i] = r.out
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			results := make([]*mailv1.ParsedMessage, 40*len(paths))
			for i := range results {
				results[i] = Parse(bytes.Clone(contents[i*(worker+1)%len(paths)]), Limits{})
			}
			for i, got := range results {
				if k := i * (worker + 1) % len(paths); !proto.Equal(want[k], got) {
					t.Errorf("%s is read otherwise", paths[k])
				}
			}
		})
	}
	all.Wait()
}
