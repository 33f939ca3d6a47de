package gateway

import (
	"strconv"
	"testing"
	"time"
)

// A flood of keys does not make each new one cost a walk over all: behind a walk there is room for many.
func TestFloodOfKeys(t *testing.T) {
	now := time.Now()
	b := newBuckets(10, time.Hour)
	for i := range maxBuckets + 1 {
		b.take(strconv.Itoa(i), 1, now)
	}
	if n := len(b.level); n > maxBuckets || b.sweep-n < maxBuckets/4 {
		t.Errorf("%d buckets, and the next walk at %d", n, b.sweep)
	}
	l := newGreylist()
	cfg := Greylist{Delay: time.Minute, Keep: time.Hour}
	for i := range maxGrey + 1 {
		l.pass(cfg, strconv.Itoa(i), now)
	}
	if n := len(l.tries); n > maxGrey || l.sweep-n < maxGrey/4 {
		t.Errorf("%d tries, and the next walk at %d", n, l.sweep)
	}
}
