package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// permit asks the spool once and remembers the answer. It may be asked while a body is under way, so that the answer is
// there when it is needed.
type permit struct {
	ask  func(context.Context) error
	once sync.Once
	done chan struct{}
	err  error // valid once done is closed
	// started is touched by the attempt's goroutine alone.
	started bool
}

func newPermit(ask func(context.Context) error) *permit {
	return &permit{ask: ask, done: make(chan struct{})}
}

// start asks without waiting for the answer. The context must last as long as the attempt.
func (p *permit) start(ctx context.Context) {
	p.started = true
	p.once.Do(func() {
		go func() {
			defer close(p.done)
			if p.ask == nil {
				p.err = errors.New("the task has no permit")
				return
			}
			p.err = p.ask(ctx)
		}()
	})
}

// wait waits for the answer. Nil means that the point of no return may be passed.
func (p *permit) wait(ctx context.Context) error {
	p.start(ctx)
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the permit: %w", ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("permit: %w", p.err)
	}
	return nil
}

// asked tells whether the spool may have recorded a permit.
func (p *permit) asked() bool { return p.started }

// settle waits for the asking to end, once its context has.
func (p *permit) settle() {
	if p.started {
		<-p.done
	}
}
