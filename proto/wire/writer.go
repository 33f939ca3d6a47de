package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Writer fills a buffer from its end, so that the length of a nested message is known when its turn comes. Tags are given as
// they stand on the wire: number and type.
type Writer struct {
	buf []byte
	pos int // what is before it has not been written
	err error
}

// Varint writes a bare varint.
func (w *Writer) Varint(v uint64) {
	if v < 0x80 {
		w.pos--
		w.buf[w.pos] = byte(v)
		return
	}
	w.pos -= protowire.SizeVarint(v)
	at := w.pos
	for ; v >= 0x80; v >>= 7 {
		w.buf[at] = byte(v) | 0x80
		at++
	}
	w.buf[at] = byte(v)
}

// Uint writes a field that is a varint.
func (w *Writer) Uint(tag, v uint64) {
	w.Varint(v)
	w.Varint(tag)
}

// String writes a field that is a string.
func (w *Writer) String(tag uint64, s string) {
	if !utf8.ValidString(s) && w.err == nil {
		w.err = errUTF8
	}
	w.pos -= len(s)
	copy(w.buf[w.pos:], s)
	w.Uint(tag, uint64(len(s)))
}

// Bytes writes a field of octets.
func (w *Writer) Bytes(tag uint64, b []byte) {
	w.Raw(b)
	w.Uint(tag, uint64(len(b)))
}

// Raw writes octets as they are, as those of unknown fields.
func (w *Writer) Raw(b []byte) {
	w.pos -= len(b)
	copy(w.buf[w.pos:], b)
}

// Message writes a field that is a message.
func (w *Writer) Message(tag uint64, m Message) {
	end := w.pos
	m.WriteWire(w)
	w.Uint(tag, uint64(end-w.pos))
}

// WritePacked writes a field that is a list of varints.
func WritePacked[T ~int32 | ~int64](w *Writer, tag uint64, list []T) {
	end := w.pos
	for i := len(list) - 1; i >= 0; i-- {
		w.Varint(uint64(list[i]))
	}
	w.Uint(tag, uint64(end-w.pos))
}

// SizePacked returns how many octets the varints of a list have.
func SizePacked[T ~int32 | ~int64](list []T) (n int) {
	for _, v := range list {
		n += protowire.SizeVarint(uint64(v))
	}
	return n
}

// Entry writes an element of a map of strings.
func (w *Writer) Entry(tag uint64, key, value string) {
	end := w.pos
	w.String(2<<3|2, value)
	w.String(1<<3|2, key)
	w.Uint(tag, uint64(end-w.pos))
}

// SizeEntry returns how many octets an element of a map of strings has.
func SizeEntry(key, value string) int {
	return 2 + protowire.SizeBytes(len(key)) + protowire.SizeBytes(len(value))
}

// Timestamp writes a field that is a time.
func (w *Writer) Timestamp(tag uint64, t *timestamppb.Timestamp) {
	w.clock(tag, t, t.GetSeconds(), t.GetNanos())
}

// Duration writes a field that is a duration.
func (w *Writer) Duration(tag uint64, d *durationpb.Duration) {
	w.clock(tag, d, d.GetSeconds(), d.GetNanos())
}

func (w *Writer) clock(tag uint64, m proto.Message, seconds int64, nanos int32) {
	end := w.pos
	w.Raw(m.ProtoReflect().GetUnknown())
	if nanos != 0 {
		w.Uint(2<<3, uint64(nanos))
	}
	if seconds != 0 {
		w.Uint(1<<3, uint64(seconds))
	}
	w.Uint(tag, uint64(end-w.pos))
}

// SizeTimestamp returns how many octets t has.
func SizeTimestamp(t *timestamppb.Timestamp) int { return sizeClock(t, t.GetSeconds(), t.GetNanos()) }

// SizeDuration returns how many octets d has.
func SizeDuration(d *durationpb.Duration) int { return sizeClock(d, d.GetSeconds(), d.GetNanos()) }

func sizeClock(m proto.Message, seconds int64, nanos int32) int {
	n := len(m.ProtoReflect().GetUnknown())
	if nanos != 0 {
		n += 1 + protowire.SizeVarint(uint64(nanos))
	}
	if seconds != 0 {
		n += 1 + protowire.SizeVarint(uint64(seconds))
	}
	return n
}
