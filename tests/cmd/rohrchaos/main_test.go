//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The command that a report names makes the same run again.
func TestRepeat(t *testing.T) {
	c := command{Seed: 7, Duration: 75 * time.Second, Sessions: usualSessions}
	if got, want := c.repeat(""), "make chaos SEED=7 DURATION=1m15s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, c := range map[string]command{
		"planted":       {Seed: 7, Duration: 75 * time.Second, Sessions: usualSessions, Plant: []string{"adopt"}},
		"more sessions": {Seed: 8, Duration: time.Minute, Sessions: 40},
		"race":          {Seed: 9, Duration: time.Hour, Sessions: usualSessions, Race: true},
	} {
		line, found := strings.CutPrefix(c.repeat(strings.Join(c.Plant, "")), "go run ./tests/cmd/rohrchaos ")
		var again command
		if _, err := again.parser().Parse(strings.Fields(line)); err != nil || !found {
			t.Errorf("%s: %q: %v", name, line, err)
		}
		if again.Seed != c.Seed || again.Duration != c.Duration || again.Sessions != c.Sessions || again.Race != c.Race || !slices.Equal(again.Plant, c.Plant) {
			t.Errorf("%s: %q makes %+v, want %+v", name, line, again, c)
		}
	}
}

// A run without time or clients is told before anything is built.
func TestNothingToDo(t *testing.T) {
	for _, c := range []command{{Seed: 1, Sessions: 1}, {Seed: 1, Duration: -time.Second, Sessions: 1}, {Seed: 1, Duration: time.Second}} {
		c.Source = t.TempDir()
		if code, err := c.run(); code != 1 || err == nil || !strings.Contains(err.Error(), "--duration") {
			t.Errorf("%+v: exit code %d, %v", c, code, err)
		}
	}
}
