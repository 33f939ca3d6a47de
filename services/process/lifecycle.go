package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Unit is a part of a process that runs until it is told to stop.
type Unit struct {
	// Name names it in logs and errors.
	Name string
	// Run blocks until its context ends, then stops in order and returns nil. An error, or an end before it was asked
	// for, stops the whole process.
	Run func(ctx context.Context) error
	// Ready is closed once the next unit may start. Nil means at once.
	Ready <-chan struct{}
	// StopTimeout is how long Run may take to return once its context has ended; 0 means 10 s. After that it is left
	// behind.
	StopTimeout time.Duration
}

const defaultStopTimeout = 10 * time.Second

// Run starts units in order, each once the one before is ready, and stops them in reverse order, each once the one after
// has stopped, when ctx ends or one of them fails. It returns what failed, nil after a clean stop. Each unit's context
// ends only when its own turn to stop has come.
func Run(ctx context.Context, logger *slog.Logger, units ...Unit) error {
	ended := make(chan *running, len(units))
	var started []*running
	var failures []error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, unit := range units {
		r := start(ctx, unit, ended)
		started = append(started, r)
		if err := waitReady(ctx, unit, ended); err != nil {
			failures = append(failures, err)
		}
		if len(failures) > 0 || ctx.Err() != nil {
			break
		}
		logger.DebugContext(ctx, "unit is ready", slog.String("unit", unit.Name))
	}
	if len(failures) == 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case r := <-ended:
			failures = append(failures, r.failure())
		}
	}
	for i := len(started) - 1; i >= 0; i-- {
		if err := started[i].halt(); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// running is a unit that was started.
type running struct {
	unit   Unit
	cancel context.CancelFunc
	done   chan struct{} // closed once err is set
	err    error
	told   bool // its failure has been reported; owned by Run
}

func start(ctx context.Context, unit Unit, ended chan<- *running) *running {
	// The end of ctx must not reach the units by itself: they stop one after the other.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{unit: unit, cancel: cancel, done: make(chan struct{})}
	go func() {
		r.err = unit.Run(own)
		close(r.done)
		ended <- r
	}()
	return r
}

// waitReady waits until a unit is ready. It tells a failure of any unit in the meantime; the end of ctx is none.
func waitReady(ctx context.Context, unit Unit, ended <-chan *running) error {
	if unit.Ready == nil {
		return nil
	}
	select {
	case <-unit.Ready:
		return nil
	case <-ctx.Done():
		return nil
	case r := <-ended:
		return r.failure()
	}
}

// failure tells why a unit ended before it was asked to.
func (r *running) failure() error {
	r.told = true
	if r.err == nil {
		return fmt.Errorf("%s: stopped without being asked", r.unit.Name)
	}
	return fmt.Errorf("%s: %w", r.unit.Name, r.err)
}

// halt stops a unit and waits for it, within its time.
func (r *running) halt() error {
	r.cancel()
	limit := r.unit.StopTimeout
	if limit == 0 {
		limit = defaultStopTimeout
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		return fmt.Errorf("%s: did not stop within %s", r.unit.Name, limit)
	}
	if r.told || r.err == nil || errors.Is(r.err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w", r.unit.Name, r.err)
}

// Signals returns a context that ends with the first SIGINT or SIGTERM. A second one ends the program at once, with exit
// code 1. The returned function gives the signals back and must be called.
func Signals(ctx context.Context, logger *slog.Logger) (context.Context, context.CancelFunc) {
	return signals(ctx, logger, func() { os.Exit(ExitFailure) })
}

func signals(ctx context.Context, logger *slog.Logger, exit func()) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	released, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for count := 0; ; count++ {
			select {
			case s := <-received:
				if count > 0 {
					exit()
					return
				}
				logger.InfoContext(ctx, "stopping; a second signal stops at once", slog.String("signal", s.String()))
				cancel()
			case <-released:
				return
			}
		}
	}()
	var called bool
	return ctx, func() {
		cancel()
		if !called {
			called = true
			signal.Stop(received)
			close(released)
			<-done
		}
	}
}
