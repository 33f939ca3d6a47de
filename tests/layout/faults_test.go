package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// docs/faults.md names tests that exist.
func TestFaultsNameRealTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, name := range testFunc.FindAllSubmatch(code, -1) {
			there[string(name[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := testName.FindAllSubmatch(text, -1)
	if len(names) < 50 {
		t.Fatalf("found only %d names of tests: has the way they are written changed?", len(names))
	}
	for _, name := range names {
		if !there[string(name[1])] {
			t.Errorf("docs/faults.md names %s, which does not exist", name[1])
		}
	}
}
