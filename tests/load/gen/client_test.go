package gen

import (
	"bytes"
	"testing"
)

// writes counts what is written at once.
type writes struct{ sizes []int }

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return len(p), nil
}

// A message under TLS goes out in as few records as hold it.
func TestWriteRecords(t *testing.T) {
	piece := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for _, c := range []struct {
		pieces []int
		want   []int
	}{
		{[]int{300, 3700, 80, 3}, []int{4083}},
		{[]int{7}, []int{7}},
		{[]int{0, 0}, nil},
		{[]int{300, 40_000, 80, 3}, []int{record, record, 40_383 - 2*record}},
		{[]int{2 * record, 5}, []int{record, record, 5}},
		{[]int{record - 1, 1, 5}, []int{record, 5}},
	} {
		var pieces [][]byte
		for _, n := range c.pieces {
			pieces = append(pieces, piece(n))
		}
		w := &writes{}
		if err := writeRecords(w, pieces); err != nil {
			t.Fatal(err)
		}
		if len(w.sizes) != len(c.want) {
			t.Errorf("%v was written as %v, want %v", c.pieces, w.sizes, c.want)
			continue
		}
		for i := range c.want {
			if w.sizes[i] != c.want[i] {
				t.Errorf("%v was written as %v, want %v", c.pieces, w.sizes, c.want)
			}
		}
	}
}
