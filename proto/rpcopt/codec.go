package rpcopt

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/rohrpost/rohrpost/proto/wire"
)

// codec encodes and decodes the messages that package wire has code for. Others, such as those of health checks, it leaves to
// gRPC's own codec. Both speak the same on the wire: a peer may use either.
type codec struct{}

var (
	_ encoding.CodecV2 = codec{}

	standard = encoding.GetCodecV2(proto.Name)
)

// Name is that of gRPC's own codec.
func (codec) Name() string { return proto.Name }

// Marshal encodes a message into a buffer of gRPC's pool.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(wire.Message)
	if !ok {
		return standard.Marshal(v)
	}
	size := m.SizeWire()
	if mem.IsBelowBufferPoolingThreshold(size) {
		b := make([]byte, size)
		return mem.BufferSlice{mem.SliceBuffer(b)}, wire.Fill(b, m)
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(size)
	if err := wire.Fill(*b, m); err != nil {
		pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// Unmarshal decodes a message, which keeps nothing of data.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wire.Message)
	if !ok {
		return standard.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return wire.Unmarshal(b.ReadOnlyData(), m)
}
