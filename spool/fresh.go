package spool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// fresh keeps content that came in until its message leaves memory, since parser, filter and deliver read it soon, and to
// read it back from the store costs more than all else that is done with it. It holds limit octets, each message whole or not
// at all. What is there stays: a beginning whose end finds no room is of no use, and the oldest message is the next that is
// read. So a message that finds none waits as long as others leave, which slows the clients of large mail down to what can be
// done with it. Nothing depends on what is in it. All methods may be called at once.
type fresh struct {
	limit  int64
	room   *semaphore.Weighted
	left   atomic.Int64 // how often room was given back
	jammed atomic.Bool  // none was for freshStuck, so that nobody waits until some is

	mu       sync.Mutex
	messages map[ID]*freshContent
}

// freshContent is what is kept of a message.
type freshContent struct {
	room   int64 // what it holds of the room: more than size while more is to come
	size   int64
	chunks []Chunk // by offset, one behind the other
	used   time.Time
}

// Content takes a quarter of what messages may take in memory, beside it, and this much at most.
const (
	freshShare = 4
	freshMost  = 64 << 20
)

// freshMessage is the most octets that a message may have that is kept: a few larger ones would leave no room for all others.
const freshMessage = 2 << 20

const (
	// freshStuck is how long a message waits for room while none is given back.
	freshStuck = 500 * time.Millisecond
	// freshTries is how often it waits so long.
	freshTries = 4
	// freshIdle is after how long what nobody has added to or read makes room for others.
	freshIdle = 10 * time.Second
)

func newFresh(memory int64) *fresh {
	limit := min(memory/freshShare, freshMost)
	return &fresh{limit: limit, room: semaphore.NewWeighted(limit), messages: map[ID]*freshContent{}}
}

// begin has what follows of a message kept, where there is room for it or soon will be. size is how much its client says that
// will be; 0 where it does not say.
func (f *fresh) begin(ctx context.Context, id ID, size int64) {
	if size <= 0 {
		size = freshMessage
	}
	size = min(size, f.limit)
	if size > freshMessage || !f.acquire(ctx, size) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(id) // it is submitted again, from its beginning
	f.messages[id] = &freshContent{room: size, used: time.Now()}
}

// acquire takes room, for which it waits as long as some is given back now and then.
func (f *fresh) acquire(ctx context.Context, octets int64) bool {
	if f.room.TryAcquire(octets) {
		return true
	}
	f.removeIdle()
	for range freshTries {
		if f.jammed.Load() {
			return f.room.TryAcquire(octets)
		}
		left := f.left.Load()
		wait, cancel := context.WithTimeout(ctx, freshStuck)
		err := f.room.Acquire(wait, octets)
		cancel()
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case f.left.Load() == left:
			f.jammed.Store(true)
		}
	}
	return false
}

// release gives room back.
func (f *fresh) release(octets int64) {
	if octets > 0 {
		f.room.Release(octets)
		f.left.Add(1)
		f.jammed.Store(false)
	}
}

// add takes the next chunk of a message, which nobody may change from then on.
func (f *fresh) add(c Chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.messages[c.Message]
	if m == nil {
		return
	}
	size := m.size + int64(len(c.Data))
	if c.Offset != m.size || size > freshMessage || size > m.room && !f.room.TryAcquire(size-m.room) {
		f.remove(c.Message)
		return
	}
	m.chunks = append(m.chunks, c)
	m.room, m.size, m.used = max(m.room, size), size, time.Now()
}

// whole says that a message has no more chunks.
func (f *fresh) whole(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.messages[id]; m != nil {
		f.release(m.room - m.size)
		m.room = m.size
	}
}

// at gives the octets of a message from offset to the end of a chunk; nothing where they are not here.
func (f *fresh) at(id ID, offset int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.messages[id]
	if m == nil {
		return nil
	}
	m.used = time.Now()
	for _, c := range m.chunks {
		if from := offset - c.Offset; from < int64(len(c.Data)) {
			return c.Data[from:]
		}
	}
	return nil
}

// drop forgets a message.
func (f *fresh) drop(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(id)
}

// clear forgets all messages.
func (f *fresh) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.messages {
		f.remove(id)
	}
}

// removeIdle forgets what is not used.
func (f *fresh) removeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, m := range f.messages {
		if time.Since(m.used) > freshIdle {
			f.remove(id)
		}
	}
}

func (f *fresh) remove(id ID) {
	if m := f.messages[id]; m != nil {
		delete(f.messages, id)
		f.release(m.room)
	}
}
