package process

import (
	"runtime"
	"syscall"
	"testing"
)

func TestPolite(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	runtime.LockOSThread() // else it might be one of those that have ended
	defer runtime.UnlockOSThread()
	mine, err := niceOf(syscall.Gettid())
	if err != nil {
		t.Fatal(err)
	}
	want := min(mine+3, 19)
	p, err := NewPolite(2, want)
	if err != nil {
		t.Fatal(err)
	}
	// Both at once, so that they are two threads.
	threads, over := make(chan int), make(chan struct{})
	for range 2 {
		go p.Do(func() { threads <- syscall.Gettid(); <-over })
	}
	first, second := <-threads, <-threads
	if first == second {
		t.Errorf("threads %d and %d, want two", first, second)
	}
	for _, thread := range []int{first, second} {
		if nice, err := niceOf(thread); err != nil || nice != want {
			t.Errorf("a thread has priority %d (%v), want %d", nice, err, want)
		}
	}
	close(over)
	if nice, err := niceOf(syscall.Gettid()); err != nil || nice != mine {
		t.Errorf("the caller has priority %d (%v), had %d", nice, err, mine)
	}
	if now := runtime.GOMAXPROCS(0); now < 3 || now != max(before, 3) {
		t.Errorf("%d processors, had %d", now, before)
	}
	if v := recovered(func() { p.Do(func() { panic("bad") }) }); v != "bad" {
		t.Errorf("a panic came as %v", v)
	}
	done := false
	p.Do(func() { done = true })
	if !done {
		t.Error("nothing is done after a panic")
	}
	p.Close()
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors after the end, had %d", now, before)
	}
}

func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}
