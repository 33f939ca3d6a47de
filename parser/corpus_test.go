package parser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// corpus is the folder of shared test mail with a name. The test is skipped where it is absent.
func corpus(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("no go.work above the package: the shared corpus cannot be found")
		}
	}
	path := filepath.Join(dir, "..", "shared", "corpus", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared corpus %s is absent", name)
	}
	return path
}

// score tells what a test reached. It must be what docs/parser.md says in the row of the corpus: a score that falls is a
// fault, and one that rises is to be told.
func score(t *testing.T, row, format string, args ...any) {
	t.Helper()
	got := fmt.Sprintf(format, args...)
	t.Logf("score %s: %s", row, got)
	for line := range strings.Lines(string(readFile(t, filepath.Join("..", "docs", "parser.md")))) {
		if strings.HasPrefix(line, "| "+row) {
			if !strings.Contains(line, " "+got) {
				t.Errorf("docs/parser.md has another score than %s: %s", got, line)
			}
			return
		}
	}
	t.Errorf("docs/parser.md has no row %s", row)
}

// mails are the files of a folder of the corpus with one of some suffixes, folders in it included.
func mails(t testing.TB, folder string, suffixes ...string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				out = append(out, path)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("no mail in %s", folder)
	}
	return out
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tree reads a message up to its tree and keeps all bodies.
func tree(content []byte) (*reader, *node) {
	r := newReader(Limits{}.withDefaults())
	r.keepAll, r.until = true, r.now().Add(time.Hour)
	root := r.newRoot()
	r.entity(r.source(content, false), 0, root)
	return r, root
}
