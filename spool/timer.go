package spool

import (
	"container/heap"
	"time"
)

// timer calls fire once at a time, from the core's tick.
type timer struct {
	at    time.Time
	fire  func()
	index int // in the heap, -1 where it is not in it
}

// timerHeap holds the timers, the next one first.
type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *timerHeap) Push(x any) {
	t, _ := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop is for container/heap.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

func (h *timerHeap) start(at time.Time, fire func()) *timer {
	t := &timer{at: at, fire: fire}
	heap.Push(h, t)
	return t
}

func (h *timerHeap) stop(t *timer) {
	if t != nil && t.index >= 0 && t.index < len(*h) && (*h)[t.index] == t {
		heap.Remove(h, t.index)
	}
}

func (h *timerHeap) run(now time.Time) {
	for len(*h) > 0 && !(*h)[0].at.After(now) {
		t, _ := heap.Pop(h).(*timer)
		t.fire()
	}
}
