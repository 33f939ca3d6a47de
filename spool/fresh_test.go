package spool

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const octets = 10 // that a fresh of these tests holds

func chunkOf(id ID, offset int64, data string) Chunk {
	return Chunk{Message: id, Offset: offset, Data: []byte(data)}
}

func TestFresh(t *testing.T) {
	f := newFresh(octets * freshShare)
	a, b := ID{1}, ID{2}
	check := func(id ID, offset int64, want string) {
		t.Helper()
		if got := f.at(id, offset); !bytes.Equal(got, []byte(want)) {
			t.Errorf("%v from %d: %q, want %q", id, offset, got, want)
		}
	}
	f.add(chunkOf(a, 0, "x")) // not begun
	check(a, 0, "")
	f.begin(t.Context(), a, 7)
	f.add(chunkOf(a, 0, "01234"))
	f.add(chunkOf(a, 5, "567"))
	f.whole(a)
	check(a, 0, "01234")
	check(a, 4, "4")
	check(a, 6, "67")
	check(a, 8, "")
	check(b, 0, "")
	f.begin(t.Context(), b, 2)
	f.add(chunkOf(b, 0, "abc")) // eleven: what is there stays
	check(b, 0, "")
	check(a, 0, "01234")
	f.begin(t.Context(), b, 1)
	f.add(chunkOf(b, 0, "ab"))
	check(b, 0, "ab")
	f.begin(t.Context(), a, 8) // submitted again
	check(a, 0, "01234")       // there is no room for both
	f.drop(b)
	f.drop(a)
	f.begin(t.Context(), a, 4)
	f.add(chunkOf(a, 1, "gap"))
	check(a, 1, "")
	f.begin(t.Context(), a, 1)
	f.begin(t.Context(), b, 1)
	f.clear()
	if !f.room.TryAcquire(octets) || len(f.messages) != 0 {
		t.Errorf("there is not all of the room again, or %d messages are left", len(f.messages))
	}
}

// Large messages leave the room to others.
func TestFreshKeepsNoLargeMessages(t *testing.T) {
	f := newFresh(1 << 30)
	small, large := ID{1}, ID{2}
	piece := make([]byte, freshMessage/2)
	f.begin(t.Context(), small, 0)
	f.begin(t.Context(), large, 0)
	for i := range int64(3) {
		f.add(Chunk{Message: large, Offset: i * freshMessage / 2, Data: piece})
		if i < 2 {
			f.add(Chunk{Message: small, Offset: i * freshMessage / 2, Data: piece})
		}
	}
	if f.at(small, 0) == nil || f.at(small, freshMessage-1) == nil {
		t.Error("a message of the largest size is not there")
	}
	if f.at(large, 0) != nil || f.at(large, freshMessage) != nil {
		t.Error("a larger one is")
	}
	if f.begin(t.Context(), large, freshMessage+1); len(f.messages) != 1 {
		t.Error("one that is said to be larger has room")
	}
}

// What is not in memory as a message takes no memory as content.
func TestFreshEndsWithItsMessage(t *testing.T) {
	c := newCore(DefaultConfig(), "s", 1, [32]byte{})
	m := &message{row: Message{ID: ID{1}}}
	c.messages[m.row.ID] = m
	c.fresh.begin(t.Context(), m.row.ID, 1)
	c.forget(m)
	if len(c.fresh.messages) != 0 {
		t.Error("its content is left")
	}
	c.fresh.begin(t.Context(), m.row.ID, 1)
	c.reset(2)
	if len(c.fresh.messages) != 0 {
		t.Error("content is left that an earlier incarnation took")
	}
}

// A message waits for room as long as others leave, and not for those that don't (promise P6).
func TestFreshWaitsForRoom(t *testing.T) {
	begin := func(ctx context.Context, f *fresh, id ID) time.Duration {
		begun := time.Now()
		f.begin(ctx, id, octets)
		return time.Since(begun)
	}
	kept := func(f *fresh, id ID) bool { return f.messages[id] != nil }
	a, b, c := ID{1}, ID{2}, ID{3}
	synctest.Test(t, func(t *testing.T) {
		f := newFresh(octets * freshShare)
		begin(t.Context(), f, a)
		time.AfterFunc(100*time.Millisecond, func() { f.drop(a) })
		if took := begin(t.Context(), f, b); took != 100*time.Millisecond || !kept(f, b) {
			t.Errorf("after %s it is kept: %t, want it to be kept once the other has left", took, kept(f, b))
		}
		if took := begin(t.Context(), f, c); took != freshStuck || kept(f, c) {
			t.Errorf("waited for %s while nothing left, want %s", took, freshStuck)
		}
		if took := begin(t.Context(), f, c); took != 0 {
			t.Errorf("waited for %s though nothing leaves, want not at all", took)
		}
		f.drop(b)
		begin(t.Context(), f, a)
		ctx, cancel := context.WithTimeout(t.Context(), freshStuck/2)
		defer cancel()
		if took := begin(ctx, f, c); took != freshStuck/2 {
			t.Errorf("waited for %s, want until its context ended", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFresh(octets * freshShare)
		begin(t.Context(), f, a)
		time.Sleep(freshIdle + 1)
		if took := begin(t.Context(), f, b); took != 0 || !kept(f, b) || kept(f, a) {
			t.Errorf("waited for %s for what is not used", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFresh(octets * freshShare)
		begin(t.Context(), f, a)
		for i := range time.Duration(60) {
			time.AfterFunc(i*freshStuck/10, func() { f.left.Add(1) }) // others leave, but there is never enough room
		}
		if took := begin(t.Context(), f, b); took != freshTries*freshStuck || kept(f, b) {
			t.Errorf("waited for %s, want %s at most", took, freshTries*freshStuck)
		}
	})
}
