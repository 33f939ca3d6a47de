package process

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
)

// Polite runs functions on threads of a lower priority than the rest of the process, so that what computes long does not keep
// others waiting: Go's own scheduler gives way only every 10 ms. Its methods may be called concurrently.
type Polite struct {
	jobs  chan func()
	spare int // processors that were added
}

// NewPolite makes some threads with a priority, 1 to 19 as nice(1) counts. Where Go has no more processors than threads it gets one
// more, until Close: one must be left for the rest. Where the process has a lower priority already it stays.
func NewPolite(threads, nice int) (*Polite, error) {
	p := &Polite{jobs: make(chan func())}
	lowered := make(chan error, threads)
	for range threads {
		go p.serve(nice, lowered)
	}
	for range threads {
		if err := <-lowered; err != nil {
			p.Close()
			return nil, fmt.Errorf("lowering the priority of a thread: %w", err)
		}
	}
	p.spare = max(0, threads+1-runtime.GOMAXPROCS(0))
	addProcessors(p.spare)
	return p, nil
}

var processors sync.Mutex // is held while their number changes

func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	if n != 0 { // else the world would stop for nothing
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
}

// serve never unlocks its thread, which ends with it: a priority can't be raised again.
func (p *Polite) serve(nice int, lowered chan<- error) {
	runtime.LockOSThread()
	const thisThread = 0
	now, err := niceOf(thisThread)
	if err == nil && now < nice {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, thisThread, nice)
	}
	lowered <- err
	for f := range p.jobs {
		f()
	}
}

// Do runs f and waits for it. A panic in it is the caller's.
func (p *Polite) Do(f func()) {
	over := make(chan any, 1)
	p.jobs <- func() {
		defer func() { over <- recover() }()
		f()
	}
	if v := <-over; v != nil {
		panic(v)
	}
}

// Close ends the threads, once they have done what they do. Nothing may be done after it.
func (p *Polite) Close() {
	close(p.jobs)
	addProcessors(-p.spare)
}
