package gateway

import (
	"fmt"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Greylist is the section `greylist`: a stranger's first try for a sender and a recipient is put off. It is off by
// default, since it delays good mail. It is kept in the memory of one process: several that share a port, and restarts,
// make it put off more.
type Greylist struct {
	// Enabled turns it on.
	Enabled bool `yaml:"enabled"`
	// Delay is how old the first try must be for another one to pass.
	Delay time.Duration `yaml:"delay"`
	// Keep is how long a try is remembered.
	Keep time.Duration `yaml:"keep"`
}

func (g Greylist) faults() error {
	if g.Delay > 0 && g.Keep > g.Delay {
		return nil
	}
	return fmt.Errorf("gateway.greylist.keep %s is too short: give more than delay, such as 36h, and a positive delay", g.Keep)
}

var errGreylisted = smtpreply.New(451, "4.7.1", "Greylisted, try again in some minutes")

// maxGrey bounds the memory of the list to some 50 MB.
const maxGrey = 200_000

// greylist remembers tries, whatever is configured. It may be used by many goroutines.
type greylist struct {
	mu    sync.Mutex
	tries map[string]try
	sweep int // when to look for old ones next
}

// try is when something was tried first and last.
type try struct{ first, last time.Time }

func newGreylist() *greylist { return &greylist{tries: map[string]try{}, sweep: 1024} }

// pass notes a try and tells whether it is late enough behind the first one of its kind.
func (l *greylist) pass(cfg Greylist, key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.tries[key]
	if !ok || now.Sub(known.last) > cfg.Keep {
		known = try{first: now}
	}
	known.last = now
	l.tries[key] = known
	if len(l.tries) > l.sweep {
		l.forget(cfg, now)
	}
	return now.Sub(known.first) >= cfg.Delay
}

// forget drops what is too old, and whatever is beyond three quarters of maxGrey, as buckets do.
func (l *greylist) forget(cfg Greylist, now time.Time) {
	for key, t := range l.tries {
		if now.Sub(t.last) > cfg.Keep {
			delete(l.tries, key)
		}
	}
	shrink(l.tries, maxGrey/4*3)
	l.sweep = min(2*len(l.tries)+1024, maxGrey)
}
