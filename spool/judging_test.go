package spool_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

// judging runs a test on a spool that judges before it answers.
func judging(t *testing.T, test func(r *rig)) {
	t.Helper()
	bubble(t, func(c *spool.Config) { c.VerdictWait = 5 * time.Second }, test)
}

// verdict is a filter that says something of each recipient, with a reply where there is one.
func verdict(reply *mailv1.Reply, actions ...mailv1.Action) func(*sink, *spool.Job) *spool.WorkResult {
	return func(*sink, *spool.Job) *spool.WorkResult {
		v := &mailv1.Verdict{}
		for _, a := range actions {
			rv := &mailv1.RecipientVerdict{Action: a, Rule: "test"}
			if a != mailv1.Action_ACTION_ACCEPT {
				rv.Reply = reply
			}
			v.Recipients = append(v.Recipients, rv)
		}
		return &spool.WorkResult{Verdict: v}
	}
}

// What a verdict says to the client, and what is kept: a refused message never becomes a row.
func TestVerdictFirst(t *testing.T) {
	const accept, reject, hold = mailv1.Action_ACTION_ACCEPT, mailv1.Action_ACTION_REJECT, mailv1.Action_ACTION_HOLD
	const later, discard = mailv1.Action_ACTION_DEFER, mailv1.Action_ACTION_DISCARD
	no := &mailv1.Reply{Code: 554, EnhancedCode: "5.7.1", Text: "No advertisements"}
	notNow := &mailv1.Reply{Code: 450, EnhancedCode: "4.7.1", Text: "Come again"}
	for name, c := range map[string]struct {
		says    *mailv1.Reply
		actions []mailv1.Action
		want    *mailv1.Reply // nil where it is accepted
		states  []mailv1.RecipientState
	}{
		"refused in the filter's words": {no, []mailv1.Action{reject, reject}, no, nil},
		"refused without words":         {nil, []mailv1.Action{reject}, &mailv1.Reply{Code: 550, EnhancedCode: "5.7.1", Text: "Refused by policy"}, nil},
		"a refusal is no 4xx":           {notNow, []mailv1.Action{reject}, &mailv1.Reply{Code: 550, EnhancedCode: "5.7.1", Text: "Refused by policy"}, nil},
		"refused for now":               {notNow, []mailv1.Action{later}, notNow, nil},
		"refused for now as if the spool had no room": {
			&mailv1.Reply{Code: 451, EnhancedCode: "4.3.0", Text: "Come again"},
			[]mailv1.Action{later},
			&mailv1.Reply{Code: 451, EnhancedCode: "4.7.1", Text: "Come again"}, nil,
		},
		"for now and for ever": {notNow, []mailv1.Action{reject, later}, notNow, nil},
		"accepted":             {nil, []mailv1.Action{accept}, nil, []mailv1.RecipientState{mailv1.RecipientState_RECIPIENT_STATE_DELIVERED}},
		"discarded": {nil, []mailv1.Action{discard, discard}, nil, []mailv1.RecipientState{
			mailv1.RecipientState_RECIPIENT_STATE_DISCARDED, mailv1.RecipientState_RECIPIENT_STATE_DISCARDED,
		}},
		"refused for one":  {no, []mailv1.Action{accept, reject}, nil, nil},
		"held":             {nil, []mailv1.Action{hold}, nil, nil},
		"held and refused": {no, []mailv1.Action{reject, hold}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			judging(t, func(r *rig) {
				r.join(spool.StageParser, "p", 1, parse)
				r.join(spool.StageFilter, "f", 1, verdict(c.says, c.actions...))
				r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
				sub := submission([]string{"a@x.example", "b@x.example"}[:len(c.actions)]...)
				a := <-r.submit(sub)
				synctest.Wait() // for what is noted
				noted := r.store.Refusals()
				if c.want == nil {
					if len(noted) > 0 {
						t.Errorf("it was accepted, and %+v is noted", noted)
					}
					if a.err != nil {
						t.Fatal(a.err)
					}
					if row, _ := r.store.Message(sub.ID); row.Verdict == nil {
						t.Error("the row was written without the verdict")
					}
					if diff := cmp.Diff(c.states, r.states(sub.ID)); diff != "" {
						t.Error(diff)
					}
					return
				}
				var reply *smtpreply.Error
				if !errors.As(a.err, &reply) {
					t.Fatalf("answered %v, want a reply", a.err)
				}
				if diff := cmp.Diff(c.want, reply.Reply(), protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
				if ids := r.store.Messages(); len(ids) > 0 {
					t.Errorf("it was refused, and %v is durable", ids)
				}
				want := []spool.Refusal{{
					Search: spool.Search{Message: sub.ID, Subject: "Hello", HeaderMessageID: "m@source.example"}, Time: time.Now(), Sender: sub.Envelope.GetSender(),
					Recipients: []string{"a@x.example", "b@x.example"}[:len(c.actions)], RecipientSum: len(c.actions),
					Size: int64(len(sub.Content)), Reply: c.want, Rule: "test", Traceparent: sub.Trace.GetTraceparent(),
				}}
				if diff := cmp.Diff(want, noted, protocmp.Transform()); diff != "" {
					t.Errorf("noted (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// While a transaction hangs refusals are told at once all the same; a bounded number of them is noted once the store is back.
func TestRefusalsWaitForNobody(t *testing.T) {
	const most = 1024
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1, parse)
		r.join(spool.StageFilter, "f", 1, verdict(nil, mailv1.Action_ACTION_REJECT))
		r.store.SetFaults(spooltest.Faults{Commit: func(spool.Incarnation, *spool.Batch) (bool, error) {
			time.Sleep(time.Second) // from then on clients are told that the store is away
			return false, spool.ErrUnavailable
		}})
		begun := time.Now()
		for range most + 10 {
			refusal(t, <-r.submit(submission("a@x.example")), 550)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("they took %s", took)
		}
		r.store.SetFaults(spooltest.Faults{})
		time.Sleep(10 * time.Second)
		if n := len(r.store.Refusals()); n != most {
			t.Errorf("%d are noted, want %d", n, most)
		}
	})
}

// A recipient that is refused while another is accepted is held: SMTP has one reply for all.
func TestVerdictFirstHoldsTheRefused(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1, parse)
		r.join(spool.StageFilter, "f", 1, verdict(nil, mailv1.Action_ACTION_ACCEPT, mailv1.Action_ACTION_REJECT))
		r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
		id := r.accept(submission("a@x.example", "b@x.example"))
		synctest.Wait()
		waits := r.store.Waits(id)
		if len(waits) != 1 || waits[0].Reason != spool.WaitHold || !cmp.Equal(waits[0].Recipients, []int32{1}) {
			t.Errorf("waits %+v, want recipient 1 held", waits)
		}
	})
}

// Promise P6: who judges nothing delays a client by verdict_wait at most, and nobody where it is known beforehand. What
// is accepted without a verdict is judged after; a late refusal holds it.
func TestVerdictComesLate(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 10, parse)
		slow := r.join(spool.StageFilter, "f", 1, nil)
		start := time.Now()
		id := r.accept(submission("a@x.example"))
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("accepted after %s, want verdict_wait", took)
		}
		job := slow.only()
		next := r.submit(submission("a@x.example"))
		time.Sleep(4 * time.Second)
		slow.worker.Result(job.Token, *verdict(nil, mailv1.Action_ACTION_REJECT)(slow, job))
		synctest.Wait()
		if waits := r.store.Waits(id); len(waits) != 1 || waits[0].Reason != spool.WaitHold {
			t.Errorf("waits %+v, want a hold", waits)
		}
		if a := <-next; a.err != nil {
			t.Fatal(a.err)
		}
		start = time.Now()
		r.accept(submission("a@x.example")) // the one before has waited for longer than this one may
		if took := time.Since(start); took > time.Second {
			t.Errorf("accepted after %s while a message waited for %s already", took, 5*time.Second)
		}
	})
}

// Promise P6: without parsers or filters mail is accepted at once, and what waits for them when the last one goes.
func TestVerdictWithoutWorkers(t *testing.T) {
	judging(t, func(r *rig) {
		start := time.Now()
		r.accept(submission("a@x.example"))
		p := r.join(spool.StageParser, "p", 1, parse)
		r.accept(submission("a@x.example"))
		f := r.join(spool.StageFilter, "f", 0, nil)
		waits := r.submit(submission("a@x.example"))
		synctest.Wait()
		f.leave()
		if a := <-waits; a.err != nil {
			t.Fatal(a.err)
		}
		f = r.join(spool.StageFilter, "f2", 0, nil)
		waits = r.submit(submission("a@x.example"))
		synctest.Wait()
		f.worker.Drain()
		if a := <-waits; a.err != nil {
			t.Fatal(a.err)
		}
		p.leave()
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A parser that dies takes nobody's early verdict while there is another one: what it held runs alone before its clients are
// answered. What kills again ends up quarantined, once it is durable (promises P1 and P5).
func TestVerdictOutlivesWorker(t *testing.T) {
	for _, instance := range []string{"", "start 1"} {
		judging(t, func(r *rig) {
			r.join(spool.StageFilter, "f", 10, judge(mailv1.Action_ACTION_REJECT))
			dies := r.joinAs(spool.StageParser, "dies", instance, 10, nil)
			poison := submission("poison@x.example")
			var others []chan answer
			for range 3 {
				others = append(others, r.submit(submission("a@x.example")))
			}
			killed := r.submit(poison)
			for range 3 {
				others = append(others, r.submit(submission("a@x.example")))
			}
			synctest.Wait()
			var deaths atomic.Int32
			kills := func(s *sink, job *spool.Job) *spool.WorkResult {
				if job.ID != poison.ID {
					return parse(s, job)
				}
				deaths.Add(1)
				s.worker.Leave()
				return nil
			}
			for _, name := range []string{"p", "q"} {
				tells := instance
				if tells != "" {
					tells += name
				}
				r.joinAs(spool.StageParser, name, tells, 1, kills)
			}
			start := time.Now()
			dies.leave()
			for _, c := range others {
				refusal(t, <-c, 550)
			}
			if a := <-killed; a.err != nil {
				t.Errorf("the client of the one that kills is told %v", a.err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			time.Sleep(time.Minute)
			if got := r.states(poison.ID); !slices.Equal(got, []mailv1.RecipientState{quarantined}) {
				t.Errorf("it ended as %v: %v", got, r.events(poison.ID))
			}
			if n := deaths.Load(); n != 1 {
				t.Errorf("it killed %d while alone, want one", n)
			}
		})
	}
}

// Promises P1 and P5: a message whose parser dies is made durable first where there is no other, then runs alone.
func TestVerdictWorkerDies(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageFilter, "f", 10, judge(mailv1.Action_ACTION_ACCEPT))
		dies := r.join(spool.StageParser, "dies", 10, nil)
		other := r.submit(submission("b@x.example"))
		id := r.acceptLosing(t, submission("a@x.example"), dies)
		if a := <-other; a.err != nil {
			t.Fatal(a.err)
		}
		p := r.join(spool.StageParser, "p", 10, nil)
		if n := len(p.got()); n != 1 {
			t.Errorf("%d jobs of suspects are out at a time, want 1", n)
		}
		if events := joined(r.events(id)); events != "accepted worker_lost" {
			t.Errorf("events %q", events)
		}
	})
}

// acceptLosing submits a message and ends the worker that gets its job.
func (r *rig) acceptLosing(t *testing.T, sub spool.Submission, dies *sink) spool.ID {
	t.Helper()
	c := r.submit(sub)
	synctest.Wait()
	dies.leave()
	if a := <-c; a.err != nil {
		t.Fatal(a.err)
	}
	synctest.Wait()
	return sub.ID
}

// A failing worker costs the message its early verdict and nothing else.
func TestVerdictFails(t *testing.T) {
	judging(t, func(r *rig) {
		tries := 0
		r.join(spool.StageParser, "p", 10, parse)
		r.join(spool.StageFilter, "f", 10, func(s *sink, job *spool.Job) *spool.WorkResult {
			if tries++; tries == 1 {
				return &spool.WorkResult{Failure: "no"}
			}
			return judge(mailv1.Action_ACTION_ACCEPT)(s, job)
		})
		r.join(spool.StageDeliver, "d", 10, deliver(mailv1.ResultStatus_RESULT_STATUS_DELIVERED))
		start := time.Now()
		id := r.accept(submission("a@x.example"))
		if took := time.Since(start); took > time.Second {
			t.Errorf("accepted after %s", took)
		}
		time.Sleep(time.Minute)
		if r.states(id) == nil {
			t.Errorf("it has not ended: %v", r.events(id))
		}
	})
}

// Promise P1: whoever goes while a message is judged is told the truth, and nothing is kept that nobody was told of.
func TestVerdictInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		do       func(r *rig, id spool.ID)
		accepted bool
	}{
		"the client goes": {func(r *rig, id spool.ID) { r.spool.Abort(id) }, false},
		"the spool stops": {func(r *rig, _ spool.ID) { r.stop() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			judging(t, func(r *rig) {
				r.join(spool.StageParser, "p", 1, nil)
				r.join(spool.StageFilter, "f", 1, nil)
				sub := submission("a@x.example")
				first := r.submit(sub)
				synctest.Wait()
				if ids := r.store.Messages(); len(ids) > 0 {
					t.Fatal("it is durable before it is judged")
				}
				c.do(r, sub.ID)
				if a := <-first; (a.err == nil) != c.accepted {
					t.Errorf("answered %v, want accepted %v", a.err, c.accepted)
				}
				synctest.Wait()
				if ids := r.store.Messages(); (len(ids) == 1) != c.accepted {
					t.Errorf("durable: %v, want it %v", ids, c.accepted)
				}
			})
		})
	}
}

// Promise P3: a message that may be durable already is made durable before it is judged, whatever the verdict would be.
func TestVerdictNotForTheSubmittedAgain(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1, parse)
		r.join(spool.StageFilter, "f", 1, verdict(nil, mailv1.Action_ACTION_REJECT))
		sub := submission("a@x.example")
		sub.Again = true
		r.accept(sub)
	})
}

// Promise P3: a message that is being judged is no longer refused once it was submitted again: between the two, another spool
// may have made it durable.
func TestVerdictSubmittedAgainMeanwhile(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1, parse)
		f := r.join(spool.StageFilter, "f", 1, nil)
		sub := submission("a@x.example")
		first := r.submit(sub)
		synctest.Wait()
		job := f.only()
		sub.Again = true
		again := r.submit(sub)
		synctest.Wait()
		f.worker.Result(job.Token, *verdict(nil, mailv1.Action_ACTION_REJECT)(f, job))
		for _, c := range []chan answer{first, again} {
			if a := <-c; a.err != nil {
				t.Error(a.err)
			}
		}
		synctest.Wait()
		if waits := r.store.Waits(sub.ID); len(waits) != 1 || waits[0].Reason != spool.WaitHold {
			t.Errorf("waits %+v, want a hold", waits)
		}
	})
}

// A message that was judged when its worker's stream broke runs with the others again where the worker did not die.
func TestVerdictWorkerComesBack(t *testing.T) {
	for name, wait := range map[string]func(){"when they are durable": synctest.Wait, "before they are durable": func() {}} {
		t.Run(name, func(t *testing.T) {
			judging(t, func(r *rig) {
				r.join(spool.StageFilter, "f", 10, judge(mailv1.Action_ACTION_ACCEPT))
				p := r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
				a, b := r.submit(submission("a@x.example")), r.submit(submission("b@x.example"))
				synctest.Wait()
				p.leave()
				wait()
				p = r.joinAs(spool.StageParser, "p", "start 1", 10, nil)
				<-a
				<-b
				synctest.Wait()
				if n := len(p.got()); n != 2 {
					t.Errorf("%d jobs are out at a time, want 2", n)
				}
			})
		})
	}
}

// Promise P6: a filter that takes jobs and never answers delays only the first clients.
func TestVerdictNeverComes(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1000, parse)
		r.join(spool.StageFilter, "f", 1000, nil)
		for range 6 {
			r.accept(submission("a@x.example"))
		}
		start := time.Now()
		r.accept(submission("a@x.example"))
		if took := time.Since(start); took > time.Second {
			t.Errorf("accepted after %s", took)
		}
	})
}

// After an outage, a few verdicts that come in time suffice for the next to come before the reply again.
func TestVerdictAfterOutage(t *testing.T) {
	judging(t, func(r *rig) {
		r.join(spool.StageParser, "p", 1000, parse)
		for range 100 {
			r.accept(submission("a@x.example"))
		}
		time.Sleep(time.Hour)
		r.join(spool.StageFilter, "f", 1000, verdict(nil, mailv1.Action_ACTION_REJECT))
		synctest.Wait()
		for range 6 {
			<-r.submit(submission("a@x.example"))
			synctest.Wait()
		}
		if a := <-r.submit(submission("a@x.example")); a.err == nil {
			t.Error("it was accepted and refused after that")
		}
	})
}

// Promise P6: verdicts that are slow do not use up what the spool may have unanswered.
func TestVerdictLeavesRoom(t *testing.T) {
	few := func(c *spool.Config) { c.VerdictWait, c.Backlog = 5*time.Second, bytesize.MiB }
	bubble(t, few, func(r *rig) {
		r.join(spool.StageParser, "p", 1000, parse)
		r.join(spool.StageFilter, "f", 1000, nil)
		var answers []chan answer
		for range 20 {
			sub := submission("a@x.example")
			sub.Content = make([]byte, 100<<10)
			answers = append(answers, r.submit(sub))
			synctest.Wait()
		}
		for i, c := range answers {
			if a := <-c; a.err != nil {
				t.Errorf("message %d: %v", i, a.err)
			}
		}
	})
}
