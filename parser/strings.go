package parser

import "strings"

// strs makes strings that share pieces of memory: many small ones cost more than their octets. A piece lives as long as any of
// its strings.
type strs struct {
	piece strings.Builder // what it holds is never changed
}

// pieceSize is how many octets a piece has for what nobody asked room for.
const pieceSize = 512

// room makes sure that so many octets go into one piece.
func (t *strs) room(n int) {
	if t.piece.Cap()-t.piece.Len() < n {
		t.piece.Reset()
		t.piece.Grow(n)
	}
}

// add is a string of the octets. One that would fill a good part of a piece has its own memory.
func (t *strs) add(b []byte) string {
	if t.piece.Cap()-t.piece.Len() < len(b) {
		if len(b) > pieceSize/4 {
			return string(b)
		}
		t.room(pieceSize)
	}
	start := t.piece.Len()
	t.piece.Write(b)
	return t.piece.String()[start:]
}
