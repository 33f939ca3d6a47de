package gateway

import (
	"context"
	"math"

	"golang.org/x/sync/semaphore"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

var errNoMemory = smtpreply.New(452, "4.3.1", "Too much mail at once, try again later")

// memory counts the octets of content that all sessions hold. It may be used by many goroutines.
type memory struct {
	room *semaphore.Weighted // of math.MaxInt64; what is beyond the budget is taken
	size int64               // the budget; of Run's goroutine
}

func newMemory(octets int64) *memory {
	m := &memory{room: semaphore.NewWeighted(math.MaxInt64), size: octets}
	m.room.TryAcquire(math.MaxInt64 - octets) // it is all free
	return m
}

// resizeMemory changes the budget. Where more is held than the new one, nothing is lent until enough has been given back.
// What waits for that ends with ctx. It is called by Run's goroutine.
func (g *Gateway) resizeMemory(ctx context.Context, octets int64) {
	m := g.memory
	less := m.size - octets
	m.size = octets
	if less <= 0 {
		m.room.Release(-less)
		return
	}
	g.resizing.Go(func() { _ = m.room.Acquire(ctx, less) }) // fails where ctx ends, and with it the budget
}

// loan is what one message holds.
type loan struct {
	m    *memory
	size int64
}

// tryGrow takes room for some more octets where there is some and nobody waits for it.
func (l *loan) tryGrow(octets int64) bool {
	if !l.m.room.TryAcquire(octets) {
		return false
	}
	l.size += octets
	return true
}

// grow waits for room for some more octets until ctx ends. While it waits nothing is read from the client, so that clients
// come to feel it by TCP before they are told.
func (l *loan) grow(ctx context.Context, octets int64) error {
	if err := l.m.room.Acquire(ctx, octets); err != nil {
		return errNoMemory.Because(err)
	}
	l.size += octets
	return nil
}

// end gives all back.
func (l *loan) end() {
	l.m.room.Release(l.size)
	l.size = 0
}
