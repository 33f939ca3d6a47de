package resolver

import (
	"sync"
	"time"

	"github.com/miekg/dns"
)

// question is what was asked. The name is canonical.
type question struct {
	name  string
	qtype uint16
}

// entry is what was answered. It is never changed.
type entry struct {
	records []dns.RR      // empty: there are none of that type
	absent  bool          // the name does not exist (NXDOMAIN)
	ttl     time.Duration // how long it is good for; 0: not to be kept
	until   time.Time     // set by the cache
}

// result is the entry as a lookup of name returns it.
func (e *entry) result(name string) ([]dns.RR, error) {
	switch {
	case e.absent:
		return nil, notFound(name, "no such domain")
	case len(e.records) == 0:
		return nil, notFound(name, "no such record")
	default:
		return e.records, nil
	}
}

// cache keeps answers until they are no longer good.
type cache struct {
	size int

	mu      sync.Mutex
	entries map[question]*entry
}

func newCache(size int) *cache { return &cache{size: size, entries: make(map[question]*entry)} }

func (c *cache) get(key question, now time.Time) (*entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil, false
	}
	if !now.Before(e.until) {
		delete(c.entries, key)
		return nil, false
	}
	return e, true
}

// evictionScan is how many entries are looked at to find one that is no longer good.
const evictionScan = 8

func (c *cache) put(key question, e *entry, now time.Time) {
	if e.ttl <= 0 || c.size == 0 {
		return
	}
	kept := *e
	kept.until = now.Add(e.ttl)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, replaces := c.entries[key]; !replaces && len(c.entries) >= c.size {
		c.evict(now)
	}
	c.entries[key] = &kept
}

// evict removes one entry: among a few, one that has ended or else the one that ends first. The order of a map is random
// enough for that.
func (c *cache) evict(now time.Time) {
	var victim question
	var ends time.Time
	seen := 0
	for key, e := range c.entries {
		if seen == 0 || e.until.Before(ends) {
			victim, ends = key, e.until
		}
		if seen++; seen == evictionScan || !now.Before(ends) {
			break
		}
	}
	delete(c.entries, victim)
}
