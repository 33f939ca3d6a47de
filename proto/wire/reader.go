package wire

import (
	"io"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ownLimit is up to which size a message's strings and octets lie in one piece of memory, in octets. It is also what a string
// that is kept can keep of others.
const ownLimit = 1 << 10

// Reader takes fields out of a buffer, of which it keeps nothing. After the first error there is nothing left to read.
type Reader struct {
	buf   []byte
	pos   int
	end   int  // of the message that is being read
	own   bool // buf is a copy that the message owns
	depth int  // how many more levels there may be
	err   error
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.pos = r.end
}

// Next tells whether the message has another field.
func (r *Reader) Next() bool { return r.pos < r.end }

// Tag reads the tag of a field, as it stands on the wire: number and type.
func (r *Reader) Tag() uint64 { return r.Varint() }

// Varint reads a varint.
func (r *Reader) Varint() uint64 {
	if r.pos < r.end {
		if b := r.buf[r.pos]; b < 0x80 {
			r.pos++
			return uint64(b)
		}
	}
	return r.longVarint()
}

func (r *Reader) longVarint() uint64 {
	v, n := protowire.ConsumeVarint(r.buf[r.pos:r.end])
	if n < 0 {
		r.fail(protowire.ParseError(n))
		return 0
	}
	r.pos += n
	return v
}

// take reads octets behind their length. They are the buffer's.
func (r *Reader) take() []byte {
	n := r.Varint()
	if n > uint64(r.end-r.pos) {
		r.fail(io.ErrUnexpectedEOF)
		return nil
	}
	start := r.pos
	r.pos += int(n)
	return r.buf[start:r.pos]
}

// String reads a string.
func (r *Reader) String() string {
	b := r.take()
	if !utf8.Valid(b) {
		r.fail(errUTF8)
		return ""
	}
	if r.own {
		return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // nobody else has the buffer, and no field overlaps another
	}
	return string(b)
}

// Bytes reads octets; none give an empty slice.
func (r *Reader) Bytes() []byte {
	b := r.take()
	if r.own {
		return b[:len(b):len(b)]
	}
	return append([]byte{}, b...)
}

// enter goes into a message, of which the caller reads all before it leaves.
func (r *Reader) enter() (outer int) {
	n := r.Varint()
	outer = r.end
	if n > uint64(r.end-r.pos) {
		r.fail(io.ErrUnexpectedEOF)
		return outer
	}
	r.end = r.pos + int(n)
	if r.depth--; r.depth <= 0 {
		r.fail(errDepth)
	}
	return outer
}

func (r *Reader) leave(outer int) {
	r.depth++
	r.end = outer
	if r.err != nil {
		r.pos = outer
	}
}

// Message reads a message and merges it into m.
func (r *Reader) Message(m Message) {
	outer := r.enter()
	r.content(m)
	r.leave(outer)
}

// content reads a message up to the end, out of a copy of it where it is small.
func (r *Reader) content(m Message) {
	if r.own || r.end-r.pos > ownLimit {
		m.ReadWire(r)
		return
	}
	whole := *r
	r.buf = append([]byte(nil), r.buf[r.pos:r.end]...)
	r.pos, r.end, r.own = 0, len(r.buf), true
	m.ReadWire(r)
	whole.err, whole.pos = r.err, whole.end
	*r = whole
}

// Run tells how many fields of this tag follow each other, the one included whose tag was read last. What they hold may turn
// out not to be valid.
func (r *Reader) Run(tag uint64) int {
	ahead := Reader{buf: r.buf, pos: r.pos, end: r.end}
	for n := 1; ; n++ {
		ahead.take()
		if !ahead.Next() || ahead.Tag() != tag {
			return n
		}
	}
}

// ReadPacked reads varints, all of a list or one of them, and appends them to the list.
func ReadPacked[T ~int32 | ~int64](r *Reader, list []T) []T {
	outer := r.enter()
	for r.Next() {
		list = append(list, T(r.Varint()))
	}
	r.leave(outer)
	return list
}

// Entry reads an element of a map of strings.
func (r *Reader) Entry(m map[string]string) map[string]string {
	var key, value string
	outer := r.enter()
	for r.Next() {
		switch tag := r.Tag(); tag {
		case 1<<3 | 2:
			key = r.String()
		case 2<<3 | 2:
			value = r.String()
		default:
			r.Unknown(nil, tag)
		}
	}
	r.leave(outer)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Timestamp reads a time and merges it into t.
func (r *Reader) Timestamp(t *timestamppb.Timestamp) *timestamppb.Timestamp {
	if t == nil {
		t = new(timestamppb.Timestamp)
	}
	r.clock(t, &t.Seconds, &t.Nanos)
	return t
}

// Duration reads a duration and merges it into d.
func (r *Reader) Duration(d *durationpb.Duration) *durationpb.Duration {
	if d == nil {
		d = new(durationpb.Duration)
	}
	r.clock(d, &d.Seconds, &d.Nanos)
	return d
}

func (r *Reader) clock(m proto.Message, seconds *int64, nanos *int32) {
	outer := r.enter()
	for r.Next() {
		switch tag := r.Tag(); tag {
		case 1 << 3:
			*seconds = int64(r.Varint())
		case 2 << 3:
			*nanos = int32(r.Varint())
		default:
			m.ProtoReflect().SetUnknown(r.Unknown(m.ProtoReflect().GetUnknown(), tag))
		}
	}
	r.leave(outer)
}

// Unknown appends the field whose tag was read last to the unknown fields of a message.
func (r *Reader) Unknown(fields []byte, tag uint64) []byte {
	num, kind := protowire.DecodeTag(tag)
	if !num.IsValid() {
		r.fail(errTag)
		return fields
	}
	n := protowire.ConsumeFieldValue(num, kind, r.buf[r.pos:r.end])
	if n < 0 {
		r.fail(protowire.ParseError(n))
		return fields
	}
	value := r.buf[r.pos : r.pos+n]
	r.pos += n
	return append(protowire.AppendVarint(fields, tag), value...)
}
