package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// countingDirectory answers by what stands in it and counts how often it is asked.
type countingDirectory struct {
	entries map[string]DirectoryEntry
	err     error
	asked   int
}

func (d *countingDirectory) Lookup(context.Context, string) (DirectoryEntry, error) {
	d.asked++
	return d.entries["u@ours.test"], d.err
}

// Answers are believed for a while, and those that are none never.
func TestDirectoryCache(t *testing.T) {
	cache := DirectoryCache{Known: time.Minute, Unknown: 10 * time.Second, Entries: 100}
	for name, c := range map[string]struct {
		cache DirectoryCache
		entry DirectoryEntry
		err   error
		lasts time.Duration // 0: not at all
	}{
		"known":               {cache: cache, entry: DirectoryEntry{Known: true}, lasts: time.Minute},
		"aliases":             {cache: cache, entry: DirectoryEntry{Known: true, Aliases: []string{"a@ours.test"}}, lasts: time.Minute},
		"unknown":             {cache: cache, lasts: 10 * time.Second},
		"case A1, no answer":  {cache: cache, err: errors.New("away")},
		"no mailbox":          {cache: cache, entry: DirectoryEntry{Known: true, Aliases: []string{"nothing"}}},
		"not wanted, known":   {cache: DirectoryCache{Unknown: time.Second, Entries: 100}, entry: DirectoryEntry{Known: true}},
		"not wanted, unknown": {cache: DirectoryCache{Known: time.Second, Entries: 100}},
		"too many aliases":    {cache: DirectoryCache{Known: time.Minute, Entries: 4}, entry: DirectoryEntry{Known: true, Aliases: []string{"a@a.test", "b@a.test"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &countingDirectory{entries: map[string]DirectoryEntry{"u@ours.test": c.entry}, err: c.err}
				d := newDirectory(source, c.cache)
				ask := func(want int) {
					t.Helper()
					entry, err := d.lookup(t.Context(), "u@ours.test")
					if source.asked != want || err == nil && (entry.Known != c.entry.Known || len(entry.Aliases) != len(c.entry.Aliases)) {
						t.Errorf("%v, %v after %d questions, want %v after %d", entry, err, source.asked, c.entry, want)
					}
				}
				ask(1)
				if c.lasts == 0 {
					ask(2)
					return
				}
				time.Sleep(c.lasts - time.Millisecond)
				ask(1)
				time.Sleep(time.Millisecond)
				ask(2)
			})
		})
	}
}

// However many addresses are asked for, no more than Entries answers are kept, and the latest is one of them.
func TestDirectoryCacheIsBounded(t *testing.T) {
	source := &countingDirectory{entries: map[string]DirectoryEntry{"u@ours.test": {Known: true, Aliases: []string{"a@a.test"}}}}
	d := newDirectory(source, DirectoryCache{Known: time.Hour, Entries: 100})
	for i := range 1000 {
		address := fmt.Sprintf("u%d@ours.test", i)
		for range 2 {
			if _, err := d.lookup(t.Context(), address); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(d.young) + len(d.old); 2*n > 100 {
			t.Fatalf("%d answers with an alias each are kept", n)
		}
	}
	if source.asked != 1000 {
		t.Errorf("asked %d times for 1000 addresses", source.asked)
	}
}
