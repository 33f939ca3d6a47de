package examples

import (
	"os"
	"regexp"
	"testing"
)

var shownFile = regexp.MustCompile("(?s)\\[`tests/examples/([a-z/.]+)`\\]\\([^)]*\\):\n\n```[a-z]*\n(.*?)```\n")

// docs/clients.md shows the files that the other tests run, whole and unchanged.
func TestDocsShowTheExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, m := range shownFile.FindAllStringSubmatch(string(page), -1) {
		shown[m[1]] = true
		text, err := os.ReadFile(m[1])
		if err != nil {
			t.Error(err)
		} else if string(text) != m[2] {
			t.Errorf("%s is not what docs/clients.md shows", m[1])
		}
	}
	for _, file := range []string{
		"go/main.go", "smtp/main.go", "watch/main.go", "worker/main.go", "python/send.py", "python/stubs.sh", "curl/send.sh",
	} {
		if !shown[file] {
			t.Errorf("docs/clients.md does not show %s", file)
		}
	}
}
