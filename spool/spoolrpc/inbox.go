package spoolrpc

import (
	"context"
)

// received is what came of one Recv.
type received[R any] struct {
	req R
	err error
}

// receive calls recv until it fails or the context ends, and hands over what it got one by one. A message that nobody
// takes keeps the stream from being read further. The handler of a stream can so wait for other things as well.
func receive[R any](ctx context.Context, recv func() (R, error)) <-chan received[R] {
	ch := make(chan received[R])
	go func() {
		for {
			req, err := recv()
			select {
			case ch <- received[R]{req, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ch
}
