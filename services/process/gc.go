package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The bounds of how far a heap may grow, in percent of what is alive, before it is collected.
const (
	// CalmPercent is for most services.
	CalmPercent = 400
	// ParserPercent is for a parser: nearly all of its heap is garbage as soon as a message is read, and each collection stops
	// all that read (docs/performance.md).
	ParserPercent = 800

	goPercent   = 100 // what Go does by itself
	snugPercent = 25
)

// headroom is how many octets a small heap may grow by.
const headroom = 64 << 20

// snug says that a large heap grows by as much as a small one.
var snug atomic.Bool

// SnugGC lets a large heap grow by 64 MiB as well, or by a quarter of what is alive where that is more, in place of as much as is
// alive. It is for a process most of whose heap is octets, which cost the collector nothing: the spool, which holds mail up to
// spool.memory, and the gateway, which has buffers for each of many thousand sessions. It works with PaceGC.
func SnugGC() { snug.Store(true) }

// PaceGC lets the heap of this process grow by some percent of what is alive, as long as that is less than 64 MiB, and by as
// much as is alive after that. By itself Go lets it grow by as much as is alive, and a worker whose few MiB are nearly all
// fresh garbage collects a hundred times a second: a fifth of its CPU (docs/performance.md). It is called once, by a
// program's main. Where GOGC is set the user has decided, and it does nothing; GOMEMLIMIT holds in any case.
func PaceGC(percent int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(percent)
	afterCollection(percent, percent)
}

// afterCollection fits the percentage to what is alive each time the heap has been collected: then the goal that it sets
// holds for the very next collection, however fast the heap grows.
func afterCollection(now, most int) {
	// The pointer keeps the sentinel from sharing its memory with other small things, which might live longer.
	sentinel := &struct{ self *int }{&now}
	runtime.AddCleanup(sentinel, func(now int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		next := gcPercent(live[0].Value.Uint64(), most, snug.Load())
		if next != now {
			debug.SetGCPercent(next)
		}
		afterCollection(next, most)
	}, now)
}

// gcPercent is how far a heap may grow of which so many octets are alive. It is in steps of a tenth, since each change
// stops the program for a moment.
func gcPercent(live uint64, most int, snug bool) int {
	const step = 10
	least := goPercent
	if snug {
		least = snugPercent
	}
	percent := int(headroom * 100 / max(live, 1))
	return min(max(percent/step*step, least), most)
}
