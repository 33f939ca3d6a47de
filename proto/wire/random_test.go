package wire_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1" // and mail/v1: what has generated code
	"github.com/rohrpost/rohrpost/proto/wire"
)

// types returns every type of message that has generated code.
func types(t testing.TB) []protoreflect.MessageType {
	t.Helper()
	var out []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if _, ok := mt.New().Interface().(wire.Message); ok {
			out = append(out, mt)
		} else if p := mt.Descriptor().ParentFile().Package(); p == "rohrpost.mail.v1" || p == "rohrpost.spool.v1" {
			t.Errorf("%s has no generated code", mt.Descriptor().FullName())
		}
		return true
	})
	if len(out) < 30 {
		t.Fatalf("only %d types have generated code", len(out))
	}
	slices.SortFunc(out, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	return out
}

// maker makes messages at random.
type maker struct {
	*rand.Rand
	entries int // of a map, at most
}

func (r maker) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(3) == 0 || fd.Message() != nil && depth == 0 && !fd.IsMap() {
			continue
		}
		switch {
		case fd.IsMap():
			for range r.IntN(r.entries + 1) {
				m.Mutable(fd).Map().Set(r.value(fd.MapKey(), nil, 0).MapKey(), r.value(fd.MapValue(), nil, 0))
			}
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range r.IntN(4) {
				list.Append(r.value(fd, list.NewElement, depth))
			}
		default:
			m.Set(fd, r.value(fd, func() protoreflect.Value { return m.NewField(fd) }, depth))
		}
	}
	if r.IntN(4) == 0 {
		m.SetUnknown(r.unknown())
	}
}

func (r maker) value(fd protoreflect.FieldDescriptor, fresh func() protoreflect.Value, depth int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("zé", r.length()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(strings.Repeat("\xff\r\n", r.length())))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(r.number()))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(r.number())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.number()))
	case protoreflect.MessageKind:
		v := fresh()
		r.fill(v.Message(), depth-1)
		return v
	default:
		panic(fmt.Sprintf("%s: a kind of field that is not made here", fd.FullName()))
	}
}

// length is often nothing, and at times more than a varint of one octet says.
func (r maker) length() int { return r.IntN(1 << r.IntN(8)) }

func (r maker) number() int64 { return int64(r.Uint64()) >> r.IntN(64) }

func (r maker) unknown() []byte {
	b := protowire.AppendTag(nil, 900, protowire.BytesType)
	b = protowire.AppendString(b, "\xff of a later version")
	b = protowire.AppendTag(b, 901, protowire.StartGroupType)
	b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, r.Uint64())
	return protowire.AppendTag(b, 901, protowire.EndGroupType)
}

// each calls f with many messages of every type.
func each(t *testing.T, entries int, f func(t *testing.T, m wire.Message)) {
	t.Helper()
	for _, mt := range types(t) {
		t.Run(string(mt.Descriptor().Name()), func(t *testing.T) {
			for seed := range uint64(200) {
				m := mt.New()
				maker{rand.New(rand.NewPCG(seed, 1)), entries}.fill(m, 6)
				f(t, m.Interface().(wire.Message))
				if t.Failed() {
					t.Fatalf("seed %d: %v", seed, m.Interface())
				}
			}
		})
	}
}

func standard(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
