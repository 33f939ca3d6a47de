package gateway

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

var errNoMemory = smtpreply.New(452, "4.3.1", "Too much mail at once, try again later")

// memory counts the octets of content that all sessions hold. It may be used by many goroutines.
type memory struct{ room *semaphore.Weighted }

func newMemory(octets int64) *memory { return &memory{semaphore.NewWeighted(octets)} }

// loan is what one message holds.
type loan struct {
	m    *memory
	size int64
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
