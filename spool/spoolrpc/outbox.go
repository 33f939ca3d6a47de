package spoolrpc

import (
	"context"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/proto/wire"
)

// outbox keeps the frames that wait to be sent on a stream, in order. Putting never waits, so that the spool's own loop
// may do it; what bounds it is how much a peer may leave unanswered.
type outbox[F proto.Message] struct {
	mu       sync.Mutex
	frames   []F
	waiting  int // frames, and those taken that are not sent
	finished bool
	wake     chan struct{} // holds one token while there may be something to do
}

func newOutbox[F proto.Message]() *outbox[F] { return &outbox[F]{wake: make(chan struct{}, 1)} }

// put appends a frame, which is sent at the next signal at the latest, and tells how many wait now.
func (o *outbox[F]) put(frame F) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames = append(o.frames, frame)
	o.waiting++
	return o.waiting
}

// finish makes run return once it has sent what is there.
func (o *outbox[F]) finish() {
	o.mu.Lock()
	o.finished = true
	o.mu.Unlock()
	o.signal()
}

// signal has sent what was put.
func (o *outbox[F]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox[F]) take() (frames []F, finished bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, o.frames = o.frames, nil
	return frames, o.finished
}

func (o *outbox[F]) sent(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting -= n
}

// run sends what is put until the context ends, sending fails or everything is sent after finish, as many frames at once
// as are ready and fit. It is the only one that sends on the stream.
func (o *outbox[F]) run(ctx context.Context, send func(frames []F) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.wake:
		}
		frames, finished := o.take()
		for len(frames) > 0 {
			n := fitting(frames)
			if err := send(frames[:n]); err != nil {
				return err
			}
			o.sent(n)
			frames = frames[n:]
		}
		if finished {
			return nil
		}
	}
}

// fitting tells how many of the first frames go into one message below maxResponse: at least one.
func fitting[F proto.Message](frames []F) int {
	total := 0
	for i, frame := range frames {
		// Each frame is an element of field 1: a tag of one octet, the length, the frame.
		total += 1 + protowire.SizeBytes(wire.Size(frame))
		if total >= maxResponse {
			return max(i, 1)
		}
	}
	return len(frames)
}
