package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

// Promise P6: the chunks of all uploads together take no more memory than the backlog. The next one waits, and its client
// with it.
func TestUploadsShareTheBacklog(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Backlog = bytesize.MiB // four chunks
	s, err := New(cfg, nil, Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	upload := func() *Upload {
		return &Upload{spool: s, sum: sha256.New(), window: make(chan struct{}, uploadWindow)}
	}
	first, second := upload(), upload()
	piece := make([]byte, chunkSize)
	for range uploadWindow + 1 { // the last stays in the upload's buffer
		if err := first.Write(t.Context(), piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Write(t.Context(), piece); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Write(ctx, piece); !errors.Is(err, context.Canceled) {
		t.Fatalf("Write gave %v where all places are taken, want it to wait until its context ends", err)
	}
	first.chunksDone(1, nil)
	if err := second.Write(t.Context(), piece); err != nil {
		t.Errorf("Write gave %v once a place was free", err)
	}
}

// Pieces become chunks as they are, but for small ones, which are put together.
func TestUploadCutsChunks(t *testing.T) {
	s, err := New(DefaultConfig(), nil, Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ pieces, want []int }{
		"large": {[]int{128 << 10, 128 << 10, chunkSize, leastChunk, 1}, []int{128 << 10, 128 << 10, chunkSize, leastChunk}},
		"small": {slices.Repeat([]int{leastChunk/2 - 1}, 7), []int{3 * (leastChunk/2 - 1), 3 * (leastChunk/2 - 1)}},
		"mixed": {[]int{1, chunkSize, 2, 3, leastChunk, 4}, []int{1, chunkSize, leastChunk + 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s.inbox = nil
			u := &Upload{spool: s, id: ID{1}, sum: sha256.New(), window: make(chan struct{}, 16)}
			s.core.fresh.begin(t.Context(), u.id, 0)
			var all []byte
			for i, n := range tt.pieces {
				piece := bytes.Repeat([]byte{byte(i + 1)}, n)
				all = append(all, piece...)
				if err := u.Write(t.Context(), piece); err != nil {
					t.Fatal(err)
				}
			}
			var got []int
			var content []byte
			for _, c := range s.core.fresh.messages[u.id].chunks {
				if c.Seq != int32(len(got)) || c.Offset != int64(len(content)) {
					t.Errorf("chunk %d begins at %d, want %d at %d", c.Seq, c.Offset, len(got), len(content))
				}
				got, content = append(got, len(c.Data)), append(content, c.Data...)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("chunks of %d octets, want %d", got, tt.want)
			}
			if content = append(content, u.buf...); !bytes.Equal(content, all) || u.Size() != int64(len(all)) {
				t.Errorf("%d octets of %d differ, or the size: %d", len(content), len(all), u.Size())
			}
		})
	}
}
