package gateway

import (
	"sync"
	"time"
)

// buckets are token buckets by key: each holds up to limit tokens and is filled within the time `every`. There are never
// more than maxBuckets; a full one is forgotten, and any where there are too many. They may be used by many goroutines.
type buckets struct {
	limit float64
	every time.Duration

	mu    sync.Mutex
	level map[string]bucket
	sweep int // when to look for full ones next
}

type bucket struct {
	tokens float64
	at     time.Time
}

// maxBuckets bounds the memory of a table to some 10 MB, whatever addresses a flood comes from.
const maxBuckets = 100_000

func newBuckets(limit int64, every time.Duration) *buckets {
	return &buckets{limit: float64(limit), every: every, level: map[string]bucket{}, sweep: 1024}
}

// has tells whether a key's bucket has a token.
func (b *buckets) has(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now(key, now) >= 1
}

// take takes n tokens from a key's bucket, which may get into debt by it.
func (b *buckets) take(key string, n int64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.level[key] = bucket{b.now(key, now) - float64(n), now}
	if len(b.level) > b.sweep {
		b.forget(now)
	}
}

func (b *buckets) now(key string, now time.Time) float64 {
	k, ok := b.level[key]
	if !ok {
		return b.limit
	}
	return min(b.limit, k.tokens+b.limit*float64(now.Sub(k.at))/float64(b.every))
}

// forget drops full buckets, and any others beyond three quarters of maxBuckets: else each new key of a flood would cost a
// walk over all of them.
func (b *buckets) forget(now time.Time) {
	for key := range b.level {
		if b.now(key, now) >= b.limit {
			delete(b.level, key)
		}
	}
	shrink(b.level, maxBuckets/4*3)
	b.sweep = min(2*len(b.level)+1024, maxBuckets)
}

// shrink drops entries, whichever come first, until no more than most are left.
func shrink[V any](m map[string]V, most int) {
	for key := range m {
		if len(m) <= most {
			return
		}
		delete(m, key)
	}
}
