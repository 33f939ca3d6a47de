package spool

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"slices"
	"sync"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

const (
	// uploadWindow is how many chunks of an upload may wait to become durable.
	uploadWindow = 4
	// leastChunk is how many octets pieces are put together to before they are written. Larger ones are written as they are.
	leastChunk = 64 << 10
)

// Upload takes the content of a message that is larger than InlineLimit, piece by piece, into chunk rows. Its methods
// are called by one goroutine at a time.
type Upload struct {
	spool *Spool
	id    ID
	size  int64
	seq   int32
	buf   []byte // of the next chunk
	sum   hash.Hash

	window chan struct{} // one for each chunk under way

	// The loop's: a chunk is written when those before it are durable, together with what has come in the meantime.
	writing bool
	queue   []Chunk

	mu      sync.Mutex
	pending int
	err     error
	done    bool
	drained func() // called when the last chunk under way is durable or has failed
}

// NewUpload begins the content of a message, of size octets as far as its client has told, else 0. It returns a
// [*smtpreply.Error] where the spool takes nothing. It waits for about 2 s at most while large content that came before is
// being worked at.
func (s *Spool) NewUpload(ctx context.Context, id ID, size int64) (*Upload, error) {
	switch l := s.lease.Load(); {
	case s.stopping.Load():
		return nil, errStopping()
	case l == nil || s.away.Load() || !l.admits(id):
		return nil, errAway()
	case s.full.Load():
		return nil, errFull()
	}
	s.core.fresh.begin(ctx, id, size)
	return &Upload{spool: s, id: id, sum: sha256.New(), window: make(chan struct{}, uploadWindow)}, nil
}

// Write adds a piece of at most 256 KiB, which is the upload's from then on. It waits while more than a bounded amount of
// the upload is not durable yet. Its error is a [*smtpreply.Error] or that of the context.
func (u *Upload) Write(ctx context.Context, p []byte) error {
	if err := u.failed(); err != nil {
		return err
	}
	u.sum.Write(p)
	if len(u.buf) >= leastChunk || len(u.buf)+len(p) > chunkSize {
		if err := u.send(ctx); err != nil {
			return err
		}
	}
	u.size += int64(len(p))
	if u.buf == nil {
		u.buf = slices.Clip(p)
	} else {
		u.buf = append(u.buf, p...)
	}
	return nil
}

func (u *Upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done && u.err == nil {
		return smtpreply.From(errors.New("the upload has ended"))
	}
	return u.err
}

// send hands the buffer over as a chunk, once there is a place for it among those of this upload and of all uploads.
func (u *Upload) send(ctx context.Context) error {
	for i, place := range []chan struct{}{u.window, u.spool.chunks} {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-u.window
			}
			return ctx.Err()
		}
	}
	u.mu.Lock()
	u.pending++
	u.mu.Unlock()
	c, s := u.chunk(), u.spool
	u.buf = nil
	posted := s.post(item{do: func(context.Context) {
		u.queue = append(u.queue, c)
		if s.core.inc == 0 {
			u.settled(errLost())
			return
		}
		u.writeQueue()
	}})
	if !posted {
		u.chunksDone(1, errStopping())
	}
	return u.failed()
}

// writeQueue hands the waiting chunks to the store, unless some are on their way. The loop calls it.
func (u *Upload) writeQueue() {
	if u.writing || len(u.queue) == 0 {
		return
	}
	u.writing = true
	n := len(u.queue)
	w := &write{chunkDone: func(err error) {
		u.writing = false
		u.chunksDone(n, err)
		if err != nil {
			u.settled(err)
			return
		}
		u.writeQueue()
	}}
	w.Chunks, u.queue = u.queue, nil
	u.spool.commits.pending = append(u.spool.commits.pending, w)
}

// settled gives up what is queued.
func (u *Upload) settled(err error) {
	n := len(u.queue)
	u.queue = nil
	if n > 0 {
		u.chunksDone(n, err)
	}
}

func (u *Upload) chunk() Chunk {
	c := Chunk{Message: u.id, Seq: u.seq, Offset: u.size - int64(len(u.buf)), Data: u.buf}
	u.seq++
	u.spool.core.fresh.add(c)
	return c
}

// chunksDone takes note that n chunks are durable or have failed.
func (u *Upload) chunksDone(n int, err error) {
	u.mu.Lock()
	u.pending -= n
	if u.err == nil {
		u.err = err
	}
	drained, last := u.drained, u.pending == 0
	u.mu.Unlock()
	for range n {
		<-u.window
		<-u.spool.chunks
	}
	if last && drained != nil {
		drained()
	}
}

// Size is the number of octets written so far.
func (u *Upload) Size() int64 { return u.size }

// Abort gives the upload up. What is durable of it is removed some time later. It does nothing after the upload was
// submitted.
func (u *Upload) Abort() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = true
	u.buf = nil
	u.spool.core.fresh.drop(u.id)
}

// submit hands the message over once all chunks but the last are durable; the last comes with the message's row.
func (u *Upload) submit(row Message, w *waiter) {
	row.Size, row.Hash = u.size, hashOf(row.Envelope, u.sum.Sum(nil))
	e := submitted{row: row, waiter: w}
	if u.seq == 0 && len(u.buf) <= InlineLimit {
		e.row.Content = u.buf
		if e.row.Content == nil {
			e.row.Content = []byte{}
		}
		u.spool.core.fresh.drop(u.id)
	} else if len(u.buf) > 0 {
		e.chunks = []Chunk{u.chunk()}
	}
	s := u.spool
	s.core.fresh.whole(u.id)
	hand := func() {
		if err := u.failed(); err != nil {
			go s.answer(w, Receipt{}, err)
			return
		}
		s.postSubmitted(e)
	}
	u.mu.Lock()
	wait := u.pending > 0
	if wait {
		u.drained = hand
	}
	u.mu.Unlock()
	if !wait {
		hand()
	}
}
