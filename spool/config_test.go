package spool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

func TestConfigIsRefused(t *testing.T) {
	const day = 24 * time.Hour
	for want, change := range map[string]func(*spool.Config){
		"keep_journal: set more than max_age": func(c *spool.Config) { c.KeepJournal, c.KeepContent = 8*day, day },
		"keep_journal: set at least":          func(c *spool.Config) { c.KeepContent = 60 * day },
		"keep_content: set at least 1d":       func(c *spool.Config) { c.KeepContent = time.Hour },
	} {
		c := spool.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := spool.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}
