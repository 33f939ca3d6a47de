package process

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]struct{ loose, snug int }{
		0: {400, 400}, 4 << 20: {400, 400}, 16 << 20: {400, 400}, 32 << 20: {200, 200}, 64 << 20: {100, 100}, 128 << 20: {100, 50},
		160 << 20: {100, 40}, 1 << 30: {100, 25},
	} {
		if loose, snug := gcPercent(live, CalmPercent, false), gcPercent(live, CalmPercent, true); loose != want.loose || snug != want.snug {
			t.Errorf("%d MiB alive: %d %% and %d %%, want %+v", live>>20, loose, snug, want)
		}
	}
}

// A heap that has grown may double only, and one that has shrunk again may grow by more.
func TestPaceGC(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(goPercent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	PaceGC(ParserPercent)
	big := make([]byte, 2*headroom)
	waitForPercent(t, goPercent)
	runtime.KeepAlive(big)
	waitForPercent(t, ParserPercent)
}

// waitForPercent collects until the percentage is in force.
func waitForPercent(t *testing.T, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); percentNow() != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d %%, want %d %%", percentNow(), want)
		}
		runtime.GC()
	}
}

func percentNow() uint64 {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return now[0].Value.Uint64()
}

func TestGOGCWins(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	PaceGC(CalmPercent)
	if now := percentNow(); now != 50 {
		t.Errorf("%d %%, want GOGC's 50 %%", now)
	}
}
