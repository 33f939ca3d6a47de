package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/proto/mailbox"
)

// Directory knows the recipients of accepted domains. The gateway calls it from many goroutines at once.
type Directory interface {
	// Lookup tells what is known of an address, before ctx ends. After an error the client is told 451.
	Lookup(ctx context.Context, address string) (DirectoryEntry, error)
}

// DirectoryEntry is what a directory knows of an address.
type DirectoryEntry struct {
	Known   bool     // there is such a recipient
	Aliases []string // the mailboxes that get its mail; empty: the address itself
}

// DirectoryCache is the section `directory_cache`: how long answers of the directory are believed without asking again. They
// are kept in the memory of one process, and SIGHUP forgets them. No answer and a bad one are never kept.
type DirectoryCache struct {
	// Known is how long a recipient that exists is believed in, with its aliases. 0 to 1h; 0 asks each time.
	Known time.Duration `yaml:"known"`
	// Unknown is how long one that does not exist is refused. 0 to 1h; 0 asks each time.
	Unknown time.Duration `yaml:"unknown"`
	// Entries is how many answers are kept at most, an alias counted as one more. From 2.
	Entries int `yaml:"entries"`
}

// maxCached is the longest time for which an answer may be believed.
const maxCached = time.Hour

func (c DirectoryCache) faults() (errs []error) {
	for _, t := range []struct {
		key   string
		value time.Duration
	}{{"known", c.Known}, {"unknown", c.Unknown}} {
		if t.value < 0 || t.value > maxCached {
			errs = append(errs, fmt.Errorf("gateway.accept.directory_cache.%s %s is out of range: give 0 to 1h", t.key, t.value))
		}
	}
	if c.Entries < 2 {
		errs = append(errs, fmt.Errorf("gateway.accept.directory_cache.entries %d is too small: give at least 2", c.Entries))
	}
	return errs
}

// directory asks a [Directory] and believes its answers for a while. It may be used by many goroutines.
type directory struct {
	Directory
	cfg DirectoryCache

	mu         sync.Mutex
	young, old map[string]cachedEntry // by address; of each half of what may be kept
	size       int                    // of young
}

type cachedEntry struct {
	DirectoryEntry
	until time.Time
}

func newDirectory(d Directory, cfg DirectoryCache) *directory {
	return &directory{Directory: d, cfg: cfg, young: map[string]cachedEntry{}}
}

// lookup tells what is known of an address, whose aliases are mailboxes.
func (d *directory) lookup(ctx context.Context, address string) (DirectoryEntry, error) {
	if entry, ok := d.recall(address, time.Now()); ok {
		return entry, nil
	}
	entry, err := d.Lookup(ctx, address)
	if err != nil {
		return DirectoryEntry{}, err
	}
	for _, alias := range entry.Aliases {
		if mailbox.TooLong(alias) || !mailbox.Valid(alias) {
			return DirectoryEntry{}, fmt.Errorf("directory gave the alias %q, which is no mailbox", cut(alias))
		}
	}
	d.keep(address, entry, time.Now())
	return entry, nil
}

func (d *directory) recall(address string, now time.Time) (DirectoryEntry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.young[address]
	if !ok {
		entry = d.old[address]
	}
	return entry.DirectoryEntry, now.Before(entry.until)
}

// keep remembers an answer. Where there is no room left the older half goes at once: a search for the oldest would cost most
// when somebody tries thousands of addresses.
func (d *directory) keep(address string, entry DirectoryEntry, now time.Time) {
	lasts := d.cfg.Unknown
	if entry.Known {
		lasts = d.cfg.Known
	}
	size, half := 1+len(entry.Aliases), d.cfg.Entries/2
	if lasts == 0 || size > half {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.size+size > half {
		d.old, d.young, d.size = d.young, map[string]cachedEntry{}, 0
	}
	if was, ok := d.young[address]; ok {
		d.size -= 1 + len(was.Aliases)
	}
	d.young[address] = cachedEntry{DirectoryEntry: entry, until: now.Add(lasts)}
	d.size += size
}
