package spool_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// Case A3: a job whose worker died is given out again at once, under a new token; the old one never counts.
func TestWorkerLostBeforePermit(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		dead := r.join(spool.StageDeliver, "dead", 1, nil)
		id := r.accept(submission("ann@x.example"))
		old := dead.only()
		dead.leave()
		d := r.join(spool.StageDeliver, "d", 1, nil)
		job := d.only()
		if string(job.Token) == string(old.Token) || job.Attempt != 1 {
			t.Errorf("given out again as attempt %d, same token %v", job.Attempt, string(job.Token) == string(old.Token))
		}
		d.worker.Result(old.Token, *attempt(old, isDelivered))
		if diff := cmp.Diff([]spool.AckStatus{spool.AckStale}, d.ack(old.Token)); diff != "" {
			t.Error(diff)
		}
		if r.states(id) != nil {
			t.Error("a stale token counts (promise P4)")
		}
	})
}

// Case B7: after the permit nobody knows what happened, unless the worker comes back and tells.
func TestWorkerLostAfterPermit(t *testing.T) {
	for name, c := range map[string]struct {
		returns bool
		want    string
	}{
		"unknown":         {false, "accepted parsed filtered permitted unknown"},
		"presented again": {true, "accepted parsed filtered permitted delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				r.fronts()
				dead := r.join(spool.StageDeliver, "dead", 1, nil)
				id := r.accept(submission("ann@x.example"))
				job := dead.only()
				dead.worker.RequestPermit(job.Token)
				if granted, _ := dead.permit(job.Token); !granted {
					t.Fatal("no permit")
				}
				dead.leave()
				d := r.join(spool.StageDeliver, "d", 1, nil)
				time.Sleep(10 * time.Second)
				if n := len(d.got()); n != 0 {
					t.Fatal("a permitted job is given out again")
				}
				if c.returns {
					d.worker.Result(job.Token, *attempt(job, isDelivered))
					d.worker.Result(job.Token, *attempt(job, isDelivered))
				} else {
					time.Sleep(6 * time.Second)
				}
				if diff := cmp.Diff(c.want, joined(r.events(id))); diff != "" {
					t.Error(diff)
				}
				if c.returns {
					acks := d.ack(job.Token)
					if len(acks) == 0 || acks[0] != spool.AckCounted {
						t.Errorf("acks %v", acks)
					}
					return
				}
				waits := r.store.Waits(id)
				if len(waits) != 1 || waits[0].Reason != spool.WaitUnknown {
					t.Errorf("waits %+v", waits)
				}
				d.worker.Result(job.Token, *attempt(job, isDelivered))
				if diff := cmp.Diff([]spool.AckStatus{spool.AckStale}, d.ack(job.Token)); diff != "" {
					t.Error(diff)
				}
				time.Sleep(time.Minute)
				if again := d.only(); again.Attempt != 2 {
					t.Errorf("attempt %d after an unknown one", again.Attempt)
				}
			})
		})
	}
}

func joined(events []string) string {
	s := ""
	for i, e := range events {
		if i > 0 {
			s += " "
		}
		s += e
	}
	return s
}

// Promise P5: what a parser died of runs alone, and is put aside when it kills again. The others go on.
func TestPoison(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.join(spool.StageFilter, "f", 100, judge(mailv1.Action_ACTION_ACCEPT))
		r.join(spool.StageDeliver, "d", 100, deliver(isDelivered))
		first := r.join(spool.StageParser, "p1", 10, nil)
		poison := r.accept(submission("ann@x.example"))
		good := r.accept(submission("ann@x.example"))
		if n := len(first.got()); n != 2 {
			t.Fatalf("%d parse jobs", n)
		}
		first.leave()
		for range 3 {
			p := r.join(spool.StageParser, "p", 10, nil)
			jobs := p.got()
			if len(jobs) != 1 {
				t.Fatalf("%d jobs at once, want one alone", len(jobs))
			}
			if jobs[0].ID == poison {
				p.leave()
				break
			}
			p.worker.Result(jobs[0].Token, *parse(p, jobs[0]))
			synctest.Wait()
			p.worker.Drain()
			p.leave()
		}
		r.join(spool.StageParser, "p", 10, parse)
		if diff := cmp.Diff([]mailv1.RecipientState{quarantined}, r.states(poison)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(good)); diff != "" {
			t.Error(diff)
		}
		if !slices.Contains(r.events(poison), "quarantined") {
			t.Errorf("journal %v", r.events(poison))
		}
	})
}

// Case B4: a lease is renewed by progress; without it the job is taken away.
func TestJobLease(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		p := r.join(spool.StageParser, "p", 2, nil)
		r.accept(submission("ann@x.example"))
		job := p.only()
		for range 5 {
			time.Sleep(50 * time.Second)
			p.worker.Progress(job.Token)
		}
		if len(p.got()) != 1 {
			t.Fatal("a job in progress was taken away")
		}
		time.Sleep(61*time.Second + 2*time.Second)
		if jobs := p.got(); len(jobs) != 2 || string(jobs[0].Token) == string(jobs[1].Token) {
			t.Fatalf("%d jobs, want it given out again", len(jobs))
		}
		p.mu.Lock()
		reason := p.cancels[string(job.Token)]
		p.mu.Unlock()
		if reason == "" {
			t.Error("the worker is not told")
		}
	})
}

func TestJobFailures(t *testing.T) {
	bubble(t, unhurried, func(r *rig) {
		fail := func(*sink, *spool.Job) *spool.WorkResult { return &spool.WorkResult{Failure: "out of memory"} }
		r.join(spool.StageParser, "p", 1, fail)
		filters := 0
		var unparsed atomic.Bool
		r.join(spool.StageFilter, "f", 1, func(s *sink, job *spool.Job) *spool.WorkResult {
			unparsed.Store(job.Parsed == nil)
			if filters++; filters <= 3 {
				return fail(s, job)
			}
			return judge(mailv1.Action_ACTION_ACCEPT)(s, job)
		})
		r.join(spool.StageDeliver, "d", 1, deliver(isDelivered))
		id := r.accept(submission("ann@x.example"))
		time.Sleep(30 * time.Second)
		waits := r.store.Waits(id)
		if len(waits) != 1 || waits[0].Reason != spool.WaitFilter || !unparsed.Load() {
			t.Fatalf("waits %+v, unparsed %v", waits, unparsed.Load())
		}
		time.Sleep(3 * time.Minute)
		if diff := cmp.Diff([]mailv1.RecipientState{delivered}, r.states(id)); diff != "" {
			t.Error(diff)
		}
	})
}

// Case J9: four equal workers get 15 to 35 % each.
func TestFairness(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		var workers []*sink
		for _, name := range []string{"p1", "p2", "p3", "p4"} {
			workers = append(workers, r.join(spool.StageParser, name, 8, func(s *sink, job *spool.Job) *spool.WorkResult {
				time.Sleep(time.Millisecond)
				return parse(s, job)
			}))
		}
		const n = 1000
		var answers []chan answer
		for range n {
			answers = append(answers, r.submit(submission("ann@x.example")))
		}
		for _, a := range answers {
			if got := <-a; got.err != nil {
				t.Fatal(got.err)
			}
		}
		time.Sleep(n * time.Millisecond)
		for i, w := range workers {
			if share := float64(len(w.got())) / n; share < 0.15 || share > 0.35 {
				t.Errorf("worker %d got %.0f %%", i+1, 100*share)
			}
		}
	})
}

// Promise P6: a destination whose workers hang does not hold up the others.
func TestDestinationLimit(t *testing.T) {
	bubble(t, func(c *spool.Config) { c.PerDestination = 3 }, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 100, nil)
		for range 10 {
			r.accept(submission("ann@dead.example"))
		}
		alive := r.accept(submission("ann@alive.example"))
		dead := 0
		seen := false
		for _, job := range d.got() {
			if job.Destination == "dead.example" {
				dead++
			}
			seen = seen || job.ID == alive
		}
		if dead != 3 || !seen {
			t.Errorf("%d jobs for the dead destination, want 3; the other sent: %v", dead, seen)
		}
	})
}

// Of a destination that is slow most waits in the store. Each message is put there once and taken out once, and what comes
// later does not pass it.
func TestCrowdedDestination(t *testing.T) {
	one := func(c *spool.Config) { c.Messages, c.PerDestination, c.CommitsInFlight = 100, 3, 1 } // commits count without a lock
	bubble(t, one, func(r *rig) {
		parked := map[spool.ID]int{}
		r.store.SetFaults(spooltest.Faults{Commit: func(_ spool.Incarnation, b *spool.Batch) (bool, error) {
			for _, w := range b.Waits {
				parked[w.Message]++
			}
			return false, nil
		}})
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 10, func(_ *sink, job *spool.Job) *spool.WorkResult {
			time.Sleep(time.Second)
			return attempt(job, isDelivered)
		})
		early, late := map[spool.ID]bool{}, map[spool.ID]bool{}
		for range 40 {
			early[r.accept(submission("ann@slow.example"))] = true
		}
		synctest.Wait()
		if len(parked) == 0 {
			t.Fatal("everything is in memory")
		}
		for range 20 { // one for each that is sent
			time.Sleep(time.Second)
			late[r.accept(submission("ann@slow.example"))] = true
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for id, n := range parked {
			if n > 1 {
				t.Errorf("%s was put into the store %d times", id, n)
			}
		}
		jobs := d.got()
		if len(jobs) != len(early)+len(late) {
			t.Fatalf("%d jobs of %d messages", len(jobs), len(early)+len(late))
		}
		for i, job := range jobs[:len(early)] {
			if late[job.ID] {
				t.Fatalf("job %d is of a message that came later than others that wait", i)
			}
		}
	})
}

// An attempt that was cut short after its permit had been recorded, as by the spool's death, sent nothing: it is made
// again soon and leaves no unknown.
func TestNotAttempted(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 1, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		d.worker.RequestPermit(job.Token)
		if granted, _ := d.permit(job.Token); !granted {
			t.Fatal("no permit")
		}
		d.worker.Result(job.Token, *attempt(job, mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED))
		d.worker.Grant(1)
		time.Sleep(2 * time.Second)
		again := d.got()
		if len(again) != 2 {
			t.Fatalf("after 2 s: %d jobs, wanted the delivery once more", len(again))
		}
		d.worker.Result(again[1].Token, *attempt(again[1], isDelivered))
		synctest.Wait()
		if diff := cmp.Diff("accepted parsed filtered permitted not_attempted delivered", joined(r.events(id))); diff != "" {
			t.Error(diff)
		}
	})
}

// A worker that is lost while its permit is written never sees it. The journal says that nothing was sent, so that no permit
// is left open, and the attempt is made again soon.
func TestWorkerLostWhilePermitIsWritten(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 1, nil)
		id := r.accept(submission("ann@x.example"))
		job := d.only()
		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			time.Sleep(time.Second)
			return false, nil
		}})
		d.worker.RequestPermit(job.Token)
		synctest.Wait()
		d.leave()
		e := r.join(spool.StageDeliver, "e", 1, deliver(isDelivered))
		time.Sleep(10 * time.Second)
		if n := len(e.got()); n != 1 {
			t.Errorf("%d jobs after the worker was lost, want one", n)
		}
		want := "accepted parsed filtered permitted not_attempted permitted delivered"
		if diff := cmp.Diff(want, joined(r.events(id))); diff != "" {
			t.Error(diff)
		}
	})
}

// A destination that a pattern names has a limit of its own.
func TestDestinationLimitByPattern(t *testing.T) {
	change := func(c *spool.Config) {
		c.PerDestination = 5
		c.Destinations = []spool.DestinationLimit{{Match: []pattern.Pattern{pattern.MustParse("*.slow.example")}, Jobs: 2}}
	}
	bubble(t, change, func(r *rig) {
		r.fronts()
		for range 10 {
			r.accept(submission("a@mx.slow.example"))
			r.accept(submission("a@fast.example"))
		}
		count := map[string]int{}
		for _, job := range r.join(spool.StageDeliver, "d", 100, nil).got() {
			count[job.Destination]++
		}
		if count["mx.slow.example"] != 2 || count["fast.example"] != 5 {
			t.Errorf("jobs by destination: %v, want 2 and 5", count)
		}
	})
}

// A destination with a rate gets its jobs one by one, however many places there are; others don't wait for it.
func TestRateOfADestination(t *testing.T) {
	bubble(t, func(c *spool.Config) {
		c.Destinations = []spool.DestinationLimit{{Match: []pattern.Pattern{pattern.MustParse("slow.example")}, Every: 2 * time.Second}}
	}, func(r *rig) {
		r.fronts()
		d := r.join(spool.StageDeliver, "d", 100, deliver(mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
		for range 3 {
			r.accept(submission("a@slow.example"))
			r.accept(submission("a@fast.example"))
		}
		count := func(destination string) (n int) {
			for _, job := range d.got() {
				if job.Destination == destination {
					n++
				}
			}
			return n
		}
		if n := count("fast.example"); n != 3 {
			t.Errorf("%d jobs for the other destination, want all 3", n)
		}
		for _, want := range []int{1, 1, 2, 2, 3, 3} {
			if n := count("slow.example"); n != want {
				t.Errorf("%d jobs for the slow destination, want %d", n, want)
			}
			time.Sleep(1001 * time.Millisecond)
		}
	})
}
