package spool

import (
	"bytes"
	"testing"
)

func TestFresh(t *testing.T) {
	f := newFresh(40) // ten octets
	a, b := ID{1}, ID{2}
	f.add(Chunk{Message: a, Offset: 0, Data: []byte("01234")})
	f.add(Chunk{Message: a, Offset: 5, Data: []byte("567")})
	check := func(id ID, offset int64, want string) {
		t.Helper()
		if got := f.at(id, offset); !bytes.Equal(got, []byte(want)) {
			t.Errorf("%v from %d: %q, want %q", id, offset, got, want)
		}
	}
	check(a, 0, "01234")
	check(a, 4, "4")
	check(a, 6, "67")
	check(a, 8, "")
	check(b, 0, "")
	f.add(Chunk{Message: b, Offset: 0, Data: []byte("abc")}) // eleven: the oldest goes
	check(a, 0, "")
	check(a, 5, "567")
	check(b, 0, "abc")
	f.add(Chunk{Message: b, Offset: 0, Data: []byte("ABCD")}) // submitted again
	check(b, 0, "ABCD")
	f.drop(a)
	check(a, 5, "")
	f.add(Chunk{Message: a, Offset: 0, Data: []byte("more than it holds")})
	check(a, 0, "")
	check(b, 0, "")
	if f.size != 0 || f.order.Len() != 0 || len(f.chunks) != 0 {
		t.Errorf("%d octets, %d chunks, %d messages are left of nothing", f.size, f.order.Len(), len(f.chunks))
	}
}

// Large messages leave the room to others.
func TestFreshKeepsNoLargeMessages(t *testing.T) {
	f := newFresh(1 << 30)
	small, large := ID{1}, ID{2}
	piece := make([]byte, freshMessage/2)
	for i := range int64(3) {
		f.add(Chunk{Message: large, Offset: i * freshMessage / 2, Data: piece})
		if i < 2 {
			f.add(Chunk{Message: small, Offset: i * freshMessage / 2, Data: piece})
		}
	}
	if f.at(small, 0) == nil || f.at(small, freshMessage-1) == nil {
		t.Error("a message of the largest size is not there")
	}
	if f.at(large, 0) != nil || f.at(large, freshMessage) != nil || f.size != freshMessage {
		t.Errorf("a larger one is, or %d octets are", f.size)
	}
}

// What is not in memory as a message takes no memory as content.
func TestFreshEndsWithItsMessage(t *testing.T) {
	c := newCore(DefaultConfig(), "s", 1, [32]byte{})
	m := &message{row: Message{ID: ID{1}}}
	c.messages[m.row.ID] = m
	c.fresh.add(Chunk{Message: m.row.ID, Data: []byte("x")})
	c.forget(m)
	if c.fresh.size != 0 {
		t.Errorf("%d octets are left", c.fresh.size)
	}
}
