package parser

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDefectsAreDocumented: docs/parser.md lists the kinds that the code notes, and no others.
func TestDefectsAreDocumented(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	kind := regexp.MustCompile(`(?:defect|once|odd)\("([a-z0-9_]+)"|"(ambiguous_base64|invalid_[a-z0-9_]+|defect_limit|internal_error)"`)
	var noted []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range kind.FindAllStringSubmatch(string(readFile(t, path)), -1) {
			noted = append(noted, m[1]+m[2])
		}
	}
	slices.Sort(noted)
	noted = slices.Compact(noted)
	var documented []string
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (?:info|warning|error) \\|")
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, filepath.Join("..", "docs", "parser.md"))), -1) {
		documented = append(documented, m[1])
	}
	for _, k := range documented {
		if !tested(t, k) {
			t.Errorf("no test and no sample has the defect %s", k)
		}
	}
	if !slices.Equal(noted, documented) {
		t.Errorf("the code notes\n%v\nand docs/parser.md lists\n%v", noted, documented)
	}
}

// tested tells whether a test or the result of one of our own samples names a defect.
func tested(t *testing.T, kind string) bool {
	t.Helper()
	for _, pattern := range []string{"*_test.go", filepath.Join("testdata", "*.json")} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`\b` + kind + `\b`)
		for _, path := range paths {
			if path != "docs_test.go" && named.Match(readFile(t, path)) {
				return true
			}
		}
	}
	return false
}
