package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChanged(t *testing.T) {
	type Inner struct {
		Every time.Duration `yaml:"every"`
	}
	type config struct {
		Name    string `yaml:"name"`
		List    []int  `yaml:"list"`
		Section struct {
			Inner `yaml:",inline"`
			Size  int `yaml:"size"`
		} `yaml:"section"`
	}
	for name, test := range map[string]struct {
		change func(*config)
		want   []string
	}{
		"nothing":    {func(*config) { /* nothing */ }, nil},
		"empty list": {func(c *config) { c.List = []int{} }, nil},
		"list":       {func(c *config) { c.List = []int{1} }, []string{"list"}},
		"sections":   {func(c *config) { c.Name, c.Section.Size, c.Section.Every = "x", 1, 1 }, []string{"name", "section.every", "section.size"}},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after config
			test.change(&after)
			if diff := cmp.Diff(test.want, Changed(before, &after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
