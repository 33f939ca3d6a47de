package rpcopt

import (
	"fmt"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// bufferSizes are the sizes, as powers of two, of the buffers in which frames are encoded and decoded. gRPC clears a buffer
// before it is used again, all of it, and by default has none between 32 KiB and 1 MiB: a frame with a mail of 64 KiB
// cleared 1 MiB at each end.
var bufferSizes = []uint8{8, 12, 14, 15, 16, 17, 18, 19, 20}

func init() { //nolint:gochecknoinits // gRPC takes the pool of its codec in no other way
	pool, err := mem.NewBinaryTieredBufferPool(bufferSizes...)
	if err != nil {
		panic(fmt.Sprintf("rpcopt: %v", err)) // only where bufferSizes itself is wrong
	}
	experimental.SetDefaultBufferPool(pool)
}
