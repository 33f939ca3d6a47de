package spool

import (
	"container/list"
	"sync"
)

// fresh keeps the last chunks that came in, since parser, filter and deliver read each of them soon, and to read them back
// from the store costs more than all else that is done with them. It holds limit octets; the oldest chunks go first.
// Nothing depends on what is in it. All methods may be called at once.
type fresh struct {
	limit int

	mu     sync.Mutex
	size   int
	order  list.List              // of Chunk, the oldest in front
	chunks map[ID][]*list.Element // of each message, by offset
}

// The last chunks take a quarter of what messages may take in memory, beside it, and this much at most.
const (
	freshShare = 4
	freshMost  = 64 << 20
)

// freshMessage is the most octets that a message may have whose chunks are kept: those of a larger one would push out
// everything else, and be gone themselves before its last octet has come.
const freshMessage = 2 << 20

func newFresh(memory int64) *fresh {
	return &fresh{limit: int(min(memory/freshShare, freshMost)), chunks: map[ID][]*list.Element{}}
}

// add takes a chunk, which nobody may change from then on.
func (f *fresh) add(c Chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Offset == 0 {
		f.remove(c.Message) // it is submitted again, from its beginning
	}
	if c.Offset+int64(len(c.Data)) > freshMessage {
		f.remove(c.Message)
		return
	}
	f.chunks[c.Message] = append(f.chunks[c.Message], f.order.PushBack(c))
	f.size += len(c.Data)
	for f.size > f.limit {
		f.removeOldest()
	}
}

// removeOldest takes the oldest chunk away: it is the first of its message.
func (f *fresh) removeOldest() {
	oldest := f.order.Front()
	c := f.forget(oldest)
	if rest := f.chunks[c.Message][1:]; len(rest) > 0 {
		f.chunks[c.Message] = rest
	} else {
		delete(f.chunks, c.Message)
	}
}

// forget takes a chunk out of the order.
func (f *fresh) forget(e *list.Element) Chunk {
	c, _ := f.order.Remove(e).(Chunk)
	f.size -= len(c.Data)
	return c
}

// at gives the octets of a message from offset to the end of a chunk; nothing where they are not here.
func (f *fresh) at(id ID, offset int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.chunks[id] {
		c, _ := e.Value.(Chunk)
		if from := offset - c.Offset; from >= 0 && from < int64(len(c.Data)) {
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

func (f *fresh) remove(id ID) {
	for _, e := range f.chunks[id] {
		f.forget(e)
	}
	delete(f.chunks, id)
}
