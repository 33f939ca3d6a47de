package spool

import (
	"context"
	"crypto/sha256"
	"errors"
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
