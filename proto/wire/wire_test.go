package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

func TestWritesWhatProtobufWrites(t *testing.T) {
	each(t, 1, func(t *testing.T, m wire.Message) {
		want := standard(t, m)
		got, err := wire.Marshal(m)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("written as %x (%v), want %x", got, err, want)
		}
		if n := wire.Size(m); n != len(want) {
			t.Errorf("its size is %d, want %d", n, len(want))
		}
	})
}

func TestReadsWhatWasWritten(t *testing.T) {
	each(t, 5, func(t *testing.T, m wire.Message) {
		b, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := wire.Unmarshal(b, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("read as %v (%v)", got, err)
		}
		for i := range b {
			b[i] = 0xff // nothing of the buffer is kept
		}
		if !proto.Equal(got, m) {
			t.Errorf("it changed with the buffer that it was read from: %v", got)
		}
	})
}

// Whoever sends a message in pieces, such as by a list that is not packed, is understood in the same way.
func TestReadsWhatProtobufReads(t *testing.T) {
	each(t, 3, func(t *testing.T, m wire.Message) {
		b := standard(t, m)
		for range 20 {
			same(t, m, b[:rand.IntN(len(b)+1)])
		}
		same(t, m, append(b, b...)) // merged with itself
	})
}

// same fails the test where the standard decoder thinks otherwise about b.
func same(t *testing.T, kind wire.Message, b []byte) {
	t.Helper()
	want, got := kind.ProtoReflect().New().Interface(), kind.ProtoReflect().New().Interface()
	wantErr, gotErr := proto.Unmarshal(b, want), wire.Unmarshal(b, got)
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%T of %x: error %v, want %v", kind, b, gotErr, wantErr)
	}
	if wantErr == nil && !proto.Equal(got, want) {
		t.Fatalf("%T of %x: read as %v, want %v", kind, b, got, want)
	}
}

func TestReadsOtherFormsOfTheSame(t *testing.T) {
	list := protowire.AppendTag(nil, 2, protowire.VarintType) // DeliverWork.recipients, not packed
	list = protowire.AppendVarint(list, 7)
	wrong := protowire.AppendTag(nil, 1, protowire.VarintType) // DeliverWork.destination, as a number: an unknown field
	wrong = protowire.AppendVarint(wrong, 7)
	long := []byte{0x98, 0x80, 0x00, 0x85, 0x80, 0x00} // DeliverWork.attempt in more octets than it needs
	for _, b := range [][]byte{list, wrong, long, append(list, list...), {0x00, 0x00}, {0x0c}, {0x0b, 0x0c}, {0x0f, 0x00}} {
		same(t, &spoolv1.DeliverWork{}, b)
	}
	hello := standard(t, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{Hello: &spoolv1.SubmitHello{Gateway: "a"}}})
	abort := standard(t, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Abort{Abort: &spoolv1.SubmitAbort{Id: "b"}}})
	version := standard(t, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{Hello: &spoolv1.SubmitHello{ProtocolVersion: 1}}})
	same(t, &spoolv1.SubmitFrame{}, append(hello, version...))
	same(t, &spoolv1.SubmitFrame{}, append(hello, abort...))
}

// What is not set, but present, is written as protobuf writes it.
func TestWritesWhatIsEmpty(t *testing.T) {
	for _, m := range []wire.Message{
		(*mailv1.Envelope)(nil),
		&spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Hello{}},
		&spoolv1.SubmitRequest{Frames: []*spoolv1.SubmitFrame{nil, {}}},
		&mailv1.Reception{ReceivedAt: &timestamppb.Timestamp{}},
	} {
		if got, err := wire.Marshal(m); err != nil || !bytes.Equal(got, standard(t, m)) {
			t.Errorf("%v is written as %x (%v), want %x", m, got, err, standard(t, m))
		}
	}
}

func TestStringsAreUTF8(t *testing.T) {
	const bad = "\xff@a.example"
	for _, m := range []wire.Message{
		&mailv1.Envelope{Sender: bad},
		&mailv1.ParsedMessage{Keywords: []string{bad}},
		&mailv1.Part{Params: map[string]string{"a": bad}},
		&mailv1.Part{Params: map[string]string{bad: "a"}},
	} {
		if _, err := wire.Marshal(m); err == nil {
			t.Errorf("%v is written", m)
		}
	}
	field := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), bad)
	if err := wire.Unmarshal(field, &mailv1.Envelope{}); err == nil {
		t.Error("an address that is not UTF-8 is read")
	}
	entry := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), field)
	if err := wire.Unmarshal(entry, &mailv1.Part{}); err == nil {
		t.Error("a parameter that is not UTF-8 is read")
	}
}

// Parts hold parts: content from a peer must not decide how much stack there is.
func TestNestingHasALimit(t *testing.T) {
	for levels, fine := range map[int]bool{1000: true, 9999: true, 20_000: false, 300_000: false} {
		var b []byte // from the last octet to the first
		for range levels {
			head := protowire.AppendVarint([]byte{15<<3 | 2}, uint64(len(b)))
			slices.Reverse(head)
			b = append(b, head...)
		}
		slices.Reverse(b)
		if err := wire.Unmarshal(b, &mailv1.Part{}); (err == nil) != fine {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

func TestLengthsThatAreNotThere(t *testing.T) {
	for _, length := range []uint64{1, 1 << 20, 1 << 31, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for field := range protowire.Number(13) {
			b := protowire.AppendVarint(protowire.AppendTag(nil, field+1, protowire.BytesType), length)
			same(t, &spoolv1.Job{}, b)
			same(t, &spoolv1.SubmitBegin{}, b)
		}
	}
}

// Messages of operators have no generated code.
func TestOtherMessages(t *testing.T) {
	m := &adminv1.GetMessageRequest{Id: "a"}
	if _, ok := any(m).(wire.Message); ok {
		t.Fatal("the message has generated code, choose another")
	}
	b, err := wire.Marshal(m)
	if err != nil || wire.Size(m) != len(b) {
		t.Fatal(err, wire.Size(m), len(b))
	}
	var got adminv1.GetMessageRequest
	if err := wire.Unmarshal(b, &got); err != nil || !proto.Equal(&got, m) {
		t.Errorf("read as %v: %v", &got, err)
	}
}

// FuzzUnmarshal looks for octets that the standard decoder takes in another way.
func FuzzUnmarshal(f *testing.F) {
	kinds := types(f)
	for i, mt := range kinds {
		m := mt.New()
		maker{rand.New(rand.NewPCG(uint64(i), 1)), 2}.fill(m, 4)
		f.Add(uint8(i), standard(f, m.Interface()))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m := kinds[int(kind)%len(kinds)].New().Interface().(wire.Message)
		same(t, m, b)
	})
}
