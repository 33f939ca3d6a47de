package spool_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// A spool whose clock is an hour off lives by the database's: it keeps its lease beside another one, tells gateways the right
// time, and sends mail when it is due.
func TestClockAnHourOff(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := spooltest.NewStore()
				right := startRig(t, store, "right", nil)
				defer right.stop()
				wrong := startOn(t, store, nil, spool.Options{Name: "wrong", Now: func() time.Time { return time.Now().Add(off) }})
				defer wrong.stop()
				due := map[spool.ID]time.Time{}
				var mu sync.Mutex
				for _, r := range []*rig{right, wrong} {
					r.fronts()
					r.join(spool.StageDeliver, "d", 10, func(_ *sink, job *spool.Job) *spool.WorkResult {
						if job.Attempt == 1 {
							return attempt(job, isTemporary)
						}
						mu.Lock()
						defer mu.Unlock()
						if late := time.Since(due[job.ID]); late < 0 || late > 2*time.Millisecond {
							t.Errorf("it came %s after it was due", late)
						}
						return attempt(job, isDelivered)
					})
				}
				if hello, _ := wrong.spool.Hello(); !hello.Time.Equal(time.Now()) {
					t.Errorf("gateways are told that it is %s, %s", hello.Time, time.Now())
				}
				sub := submission("ann@x.example")
				sub.Deadline = sub.Deadline.Add(off) // by the clock of its process
				id := wrong.accept(sub)
				synctest.Wait()
				waits := store.Waits(id)
				if len(waits) != 1 {
					t.Fatalf("waits %+v", waits)
				}
				mu.Lock()
				due[id] = waits[0].NextAt
				mu.Unlock()
				if in := time.Until(due[id]); in <= 0 || in > time.Minute {
					t.Errorf("the next attempt is due in %s, want the first wait of back_off", in)
				}
				time.Sleep(5 * time.Minute)
				if got := wrong.states(id); !slices.Equal(got, []mailv1.RecipientState{delivered}) {
					t.Errorf("it ended as %v: %v", got, wrong.events(id))
				}
				for _, r := range []*rig{right, wrong} {
					if hello, ok := r.spool.Hello(); !ok || hello.Incarnation != r.inc || len(hello.Peers) != 1 {
						t.Errorf("hello %+v, it began as %d", hello, r.inc)
					}
				}
				wrong.stop()
				right.stop()
				if err := store.Audit(); err != nil {
					t.Errorf("promise P2: %v", err)
				}
			})
		})
	}
}

// The database's clock is set, and until a spool renews its lease it knows nothing of that: mail that is due for one and not for
// the other is not claimed and given back again and again.
func TestStoresClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := spooltest.NewStore()
		var ahead, claims atomic.Int64
		store.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		store.SetFaults(spooltest.Faults{Call: func(method string) error {
			if method == "Claim" && claims.Add(1) > 1000 {
				return spool.ErrUnavailable // else time would stand still
			}
			return nil
		}})
		r := startRig(t, store, "a", func(c *spool.Config) { c.BackOff = []time.Duration{30 * time.Minute} })
		defer r.stop()
		r.fronts()
		r.join(spool.StageDeliver, "d", 1000, func(_ *sink, job *spool.Job) *spool.WorkResult {
			if job.Attempt == 1 {
				return attempt(job, isTemporary)
			}
			return attempt(job, isDelivered)
		})
		var ids []spool.ID
		for range 300 { // more than one claim takes
			ids = append(ids, r.accept(submission("ann@x.example")))
		}
		time.Sleep(time.Minute)
		for _, set := range []time.Duration{time.Hour, -time.Hour, 0} {
			before := claims.Load()
			ahead.Store(int64(set))
			time.Sleep(10 * time.Second)
			if n := claims.Load() - before; n > 200 {
				t.Errorf("%d claims in 10 s when the clock was set by %s", n, set)
			}
		}
		for _, id := range ids {
			if r.states(id) == nil {
				t.Fatalf("%s has not ended: %v", id, r.store.Waits(id))
			}
		}
	})
}
