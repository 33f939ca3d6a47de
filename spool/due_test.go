package spool_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

// What waits in the store goes out when it is due, not when the store is asked next.
func TestDueInTime(t *testing.T) {
	const messages = 20
	bubble(t, nil, func(r *rig) {
		r.fronts()
		var mu sync.Mutex
		at := map[spool.ID]time.Time{}
		late := map[spool.ID]time.Duration{}
		r.join(spool.StageDeliver, "d", messages, func(_ *sink, job *spool.Job) *spool.WorkResult {
			if job.Attempt == 1 {
				return attempt(job, isTemporary)
			}
			mu.Lock()
			defer mu.Unlock()
			late[job.ID] = time.Since(at[job.ID])
			return attempt(job, isDelivered)
		})
		for range messages {
			id := r.accept(submission("ann@x.example"))
			synctest.Wait()
			waits := r.store.Waits(id)
			if len(waits) != 1 || waits[0].Owned {
				t.Fatalf("waits %+v, want one without owner", waits)
			}
			mu.Lock()
			at[id] = waits[0].NextAt
			mu.Unlock()
			time.Sleep(73 * time.Millisecond) // at no multiple of the tick
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(late) != messages {
			t.Fatalf("%d messages were tried again, want %d", len(late), messages)
		}
		for id, d := range late {
			if d < 0 || d > 2*time.Millisecond {
				t.Errorf("message %s came %s after it was due", id, d)
			}
		}
	})
}

// A destination with much to send gets it as fast as it takes it, not what one claim brings at each tick.
func TestDueAllAtOnce(t *testing.T) {
	const messages = 500
	bubble(t, nil, func(r *rig) {
		r.fronts()
		var first, last time.Time
		n := 0
		r.join(spool.StageDeliver, "d", messages, func(_ *sink, job *spool.Job) *spool.WorkResult {
			if job.Attempt == 1 {
				return attempt(job, isTemporary)
			}
			if n++; n == 1 {
				first = time.Now()
			}
			last = time.Now()
			return attempt(job, isDelivered)
		})
		for range messages {
			r.accept(submission("ann@x.example")) // all in the same moment, as time goes here
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if took := last.Sub(first); n != messages || took > spool.DefaultConfig().Tick {
			t.Errorf("%d messages that were due at once were sent within %s", n, took)
		}
	})
}
