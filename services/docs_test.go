package services

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/services/process"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Every example of a configuration in the documentation is one that a service starts with.
func TestExamplesOfDocs(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			examples++
			cfg := DefaultConfig()
			if err := loadExample(t, string(block[1]), &cfg); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block[1])
			}
		}
	}
	if examples < 4 {
		t.Errorf("found %d examples, want those of operations, smtp, filter and deliver", examples)
	}
}

func loadExample(t *testing.T, example string, cfg *Config) error {
	if strings.HasPrefix(example, "rules:") { // the page is about one section
		example = "filter:\n  " + strings.ReplaceAll(example, "\n", "\n  ")
	}
	file := filepath.Join(t.TempDir(), "rohrpost.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := process.Load(file, nil, cfg); err != nil {
		return err
	}
	return cfg.Validate()
}
