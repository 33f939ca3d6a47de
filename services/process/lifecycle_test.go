package process

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// diary notes what units do, in order.
type diary struct {
	mu   sync.Mutex
	list []string
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, s)
}

// unit is one that is ready as soon as it runs.
func (d *diary) unit(name string, end func(context.Context) error) Unit {
	ready := make(chan struct{})
	return Unit{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		d.note("start " + name)
		close(ready)
		err := end(ctx)
		d.note("stop " + name)
		return err
	}}
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		units func(d *diary, stop context.CancelFunc) []Unit
		diary []string
		err   string
	}{
		"stops in reverse order": {
			units: func(d *diary, stop context.CancelFunc) []Unit {
				return []Unit{d.unit("a", untilStopped), d.unit("b", untilStopped), d.unit("c", func(ctx context.Context) error {
					stop()
					return untilStopped(ctx)
				})}
			},
			diary: []string{"start a", "start b", "start c", "stop c", "stop b", "stop a"},
		},
		"a failure stops the others": {
			units: func(d *diary, _ context.CancelFunc) []Unit {
				return []Unit{d.unit("a", untilStopped), d.unit("b", func(context.Context) error { return broken })}
			},
			diary: []string{"start a", "start b", "stop b", "stop a"}, err: "b: broken",
		},
		"an end that nobody asked for is a failure": {
			units: func(d *diary, _ context.CancelFunc) []Unit {
				return []Unit{d.unit("a", func(context.Context) error { return nil })}
			},
			diary: []string{"start a", "stop a"}, err: "a: stopped without being asked",
		},
		"a unit that fails before it is ready keeps the next from starting": {
			units: func(d *diary, _ context.CancelFunc) []Unit {
				return []Unit{
					{Name: "a", Ready: make(chan struct{}), Run: func(context.Context) error { return broken }},
					d.unit("b", untilStopped),
				}
			},
			err: "a: broken",
		},
		"a failure while stopping is told": {
			units: func(d *diary, stop context.CancelFunc) []Unit {
				return []Unit{d.unit("a", func(ctx context.Context) error {
					stop()
					<-ctx.Done()
					return broken
				})}
			},
			diary: []string{"start a", "stop a"}, err: "a: broken",
		},
		"the end comes while a unit is not ready": {
			units: func(_ *diary, stop context.CancelFunc) []Unit {
				return []Unit{{Name: "a", Ready: make(chan struct{}), Run: func(ctx context.Context) error {
					stop()
					return untilStopped(ctx)
				}}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var d diary
			err := Run(ctx, slog.New(slog.DiscardHandler), test.units(&d, cancel)...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.err {
				t.Errorf("got error %q, want %q", got, test.err)
			}
			if diff := cmp.Diff(test.diary, d.list); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRunLeavesAUnitBehindThatDoesNotStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var d diary
	release, returned := make(chan struct{}), make(chan struct{})
	err := Run(ctx, slog.New(slog.DiscardHandler), d.unit("a", untilStopped), Unit{
		Name: "deaf", StopTimeout: time.Millisecond,
		Run: func(context.Context) error {
			defer close(returned)
			cancel()
			<-release
			return nil
		},
	})
	close(release)
	<-returned
	if err == nil || !strings.Contains(err.Error(), "deaf: did not stop within 1ms") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"start a", "stop a"}, d.list); diff != "" {
		t.Error(diff)
	}
}

func TestSignals(t *testing.T) {
	exited := make(chan struct{})
	ctx, release := signals(t.Context(), slog.New(slog.DiscardHandler), func() { close(exited) })
	defer release()
	for _, wait := range []<-chan struct{}{ctx.Done(), exited} {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-wait:
		case <-time.After(10 * time.Second):
			t.Fatal("the signal did nothing")
		}
	}
}
