package spoolrpc

import (
	"context"
	"sync"
)

// window bounds what a gateway may leave unanswered on a stream: a number of messages until their replies are sent, and
// the octets of those that the spool has not decided about. One goroutine enters; any may leave.
type window struct {
	maxCount, maxBytes int

	mu           sync.Mutex
	count, bytes int
	left         chan struct{} // holds one token after something has left
}

func newWindow(maxCount, maxBytes int) *window {
	return &window{maxCount: maxCount, maxBytes: maxBytes, left: make(chan struct{}, 1)}
}

// enter waits until there is room for one more message of n octets. A message larger than the whole window enters alone.
func (w *window) enter(ctx context.Context, n int) error {
	for !w.tryEnter(n) {
		select {
		case <-w.left:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *window) tryEnter(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.maxCount || (w.bytes > 0 && w.bytes+n > w.maxBytes) {
		return false
	}
	w.count++
	w.bytes += n
	return true
}

// leave gives back messages and octets.
func (w *window) leave(count, bytes int) {
	w.mu.Lock()
	w.count -= count
	w.bytes -= bytes
	w.mu.Unlock()
	select {
	case w.left <- struct{}{}:
	default:
	}
}

// empty waits until everything has left. It is called by the goroutine that enters.
func (w *window) empty(ctx context.Context) error {
	for {
		w.mu.Lock()
		n := w.count
		w.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-w.left:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
