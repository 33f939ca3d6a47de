// Package wire encodes and decodes the messages of the mail's flow by generated code, several times faster than
// google.golang.org/protobuf does by reflection. What it writes and takes is the same, octet for octet but for the order in
// maps: strings must be UTF-8 both ways, unknown fields are kept, and nesting has a limit. Messages without generated code,
// such as those of operators, are left to google.golang.org/protobuf.
//
// The code is made by tools/protoc-gen-go-wire, see docs/adr/016-own-codec.md. Package rpcopt gives gRPC a codec of it.
package wire

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Message is a message with generated code. Its methods are for this package and for generated code.
type Message interface {
	proto.Message
	// SizeWire returns how many octets WriteWire writes.
	SizeWire() int
	// WriteWire writes the fields, the last one first.
	WriteWire(w *Writer)
	// ReadWire reads fields up to the end of the message and merges them into it.
	ReadWire(r *Reader)
}

var (
	errUTF8    = errors.New("wire: a string is not valid UTF-8")
	errDepth   = errors.New("wire: messages are nested too deeply")
	errTag     = errors.New("wire: a field number is not valid")
	errChanged = errors.New("wire: the message was changed while it was written")
)

// maxDepth is how deeply messages may be nested: what google.golang.org/protobuf takes.
const maxDepth = protowire.DefaultRecursionLimit

// Size returns how many octets m has, encoded.
func Size(m proto.Message) int {
	if m, ok := m.(Message); ok {
		return m.SizeWire()
	}
	return proto.Size(m)
}

// Marshal returns m encoded, not nil. It fails where a string is not UTF-8.
func Marshal(m proto.Message) ([]byte, error) { return Append([]byte{}, m) }

// Append appends m, encoded, to b. It fails where a string is not UTF-8.
func Append(b []byte, m proto.Message) ([]byte, error) {
	f, ok := m.(Message)
	if !ok {
		return proto.MarshalOptions{}.MarshalAppend(b, m)
	}
	size := f.SizeWire()
	b = slices.Grow(b, size)[:len(b)+size]
	if err := Fill(b[len(b)-size:], f); err != nil {
		return nil, err
	}
	return b, nil
}

// Fill writes m into b, which has exactly the size of m. It fails where a string is not UTF-8.
func Fill(b []byte, m Message) error {
	w := Writer{buf: b, pos: len(b)}
	m.WriteWire(&w)
	if w.err == nil && w.pos != 0 {
		return errChanged
	}
	return w.err
}

// Unmarshal reads b into m, whose former fields are cleared. Nothing of b is kept. It fails where b is not a message of this
// kind, or a string is not UTF-8.
func Unmarshal(b []byte, m proto.Message) error {
	f, ok := m.(Message)
	if !ok {
		return proto.Unmarshal(b, m)
	}
	proto.Reset(m)
	r := Reader{buf: b, end: len(b), depth: maxDepth}
	r.content(f)
	return r.err
}

// SizeVarint returns how many octets v has as a varint.
func SizeVarint(v uint64) int { return protowire.SizeVarint(v) }

// SizeBytes returns how many octets n octets have, their length before them.
func SizeBytes(n int) int { return protowire.SizeBytes(n) }
