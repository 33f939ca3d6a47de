package rpcopt

import (
	"testing"

	"google.golang.org/grpc/mem"
)

// A frame gets a buffer of less than twice its size, once it is above a page.
func TestBuffersFitTheirFrames(t *testing.T) {
	for _, size := range []int{10 << 10, 66 << 10, 130 << 10, 260 << 10, 700 << 10} {
		pool := mem.DefaultBufferPool()
		b := pool.Get(size)
		if len(*b) != size || cap(*b) >= 2*size {
			t.Errorf("a frame of %d octets: a buffer of %d with room for %d", size, len(*b), cap(*b))
		}
		pool.Put(b)
	}
}
