//go:build unix

package process

import (
	"log/slog"
	"syscall"
	"testing"
	"time"
)

// SIGHUP does not end the process, not even while it stops, and several that nobody has seen count for one.
func TestHangups(t *testing.T) {
	ctx, hangups, release := Hangups(t.Context(), slog.New(slog.DiscardHandler))
	for range 3 {
		for range 3 {
			hangUp(t)
		}
		select {
		case <-hangups:
		case <-time.After(time.Minute):
			t.Fatal("nobody is told of SIGHUP")
		}
	}
	if ctx.Err() != nil {
		t.Error("SIGHUP ends the process")
	}
	release()
	if ctx.Err() == nil {
		t.Error("the context outlives it")
	}
}

func hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
