package postgres_test

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// deadMessages is how many messages wait for the dead destination: 100 000 by hand, fewer each time.
var deadMessages = flag.Int("dead", 3000, "messages that wait for a dead destination")

// mill is all workers of a spool in one: it accepts everything, delivers at once, and never answers for a dead destination.
type mill struct {
	spool *spool.Spool
	stage spool.Stage

	mu     sync.Mutex
	worker *spool.Worker
	dead   int
	jobs   map[string]*spool.Job
	told   func(id spool.ID)
}

func join(t *testing.T, s *spool.Spool, stage spool.Stage, told func(spool.ID)) *mill {
	t.Helper()
	m := &mill{spool: s, stage: stage, jobs: map[string]*spool.Job{}, told: told}
	m.mu.Lock()
	defer m.mu.Unlock()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if m.worker, err = s.Join(stage, stage.String(), "", m); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	m.worker.Grant(100)
	t.Cleanup(m.worker.Leave)
	return m
}

func (m *mill) SendJob(job *spool.Job) {
	go func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch m.stage {
		case spool.StageParser:
			m.worker.Result(job.Token, spool.WorkResult{Parsed: &mailv1.ParsedMessage{}})
		case spool.StageFilter:
			v := &mailv1.Verdict{}
			for range job.Envelope.GetRecipients() {
				v.Recipients = append(v.Recipients, &mailv1.RecipientVerdict{Action: mailv1.Action_ACTION_ACCEPT})
			}
			m.worker.Result(job.Token, spool.WorkResult{Verdict: v})
		default:
			m.jobs[string(job.Token)] = job
			if job.Destination == "dead.example" {
				m.dead++
				return // it hangs, as a connection does to which nobody answers
			}
			m.worker.RequestPermit(job.Token)
			return
		}
		m.worker.Grant(1)
	}()
}

func (m *mill) AnswerPermit(token []byte, granted bool) {
	go func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		job := m.jobs[string(token)]
		if !granted || job == nil {
			return
		}
		a := &mailv1.Attempt{Destination: job.Destination, Number: job.Attempt}
		for _, r := range job.Recipients {
			a.Results = append(a.Results, &mailv1.RecipientResult{Recipient: r, Status: mailv1.ResultStatus_RESULT_STATUS_DELIVERED})
		}
		m.worker.Result(token, spool.WorkResult{Attempt: a})
		m.worker.Grant(1)
	}()
}

func (m *mill) AckResult(token []byte, status spool.AckStatus) {
	if status == spool.AckCounted && m.stage == spool.StageDeliver {
		go func() {
			m.mu.Lock()
			job := m.jobs[string(token)]
			m.mu.Unlock()
			m.told(job.ID)
		}()
	}
}
func (m *mill) CancelJob([]byte, string) {}
func (m *mill) SendDrain()               {}
func (m *mill) SendHello(spool.Hello)    {}
func (m *mill) Flush()                   {}

// deferMany makes messages for a destination whose waiting rows have long been due. The copies belong to nobody: a spool
// may have claimed the first by the time they are made.
func (f *fixture) deferMany(inc spool.Incarnation, destination string, count int) {
	f.Helper()
	m := message(f.T, "waits", "rcpt@"+destination)
	f.commit(inc, &spool.Batch{Messages: []spool.Message{m}, Waits: []spool.Wait{wait(m.ID, destination, false, 0)}})
	f.sql(`WITH copies AS (
			SELECT overlay(gen_random_uuid()::text PLACING substr($1::text, 1, 15) FROM 1 FOR 15)::uuid AS id FROM generate_series(2, $2)
		), messages AS (
			INSERT INTO message (id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits, verdict, traceparent, tracestate, content)
			SELECT c.id, m.owner, m.sender, m.recipients, m.accepted_at, m.size, m.content_hash, m.envelope, m.edits, m.verdict, m.traceparent, m.tracestate, m.content
			FROM copies c, message m WHERE m.id = $1::uuid
		)
		INSERT INTO deferred (message_id, destination, owner, reason, recipients, attempts, next_at, expires_at, last_reply)
		SELECT c.id, d.destination, NULL, d.reason, d.recipients, d.attempts, d.next_at - interval '1 hour', d.expires_at, d.last_reply
		FROM copies c, deferred d WHERE d.message_id = $1::uuid`, m.ID.String(), count)
	f.sql("ANALYZE deferred")
}

// Promise P6: many messages that wait for one dead destination delay nobody else, neither fresh mail nor retries, though
// there are more of them than fit into memory.
func TestDeadDestinationDelaysNobody(t *testing.T) {
	f := newFixture(t)
	var cfg spool.Config
	s, _ := run(t, f.store, func(c *spool.Config) {
		c.Messages, c.Lease = 1000, 10*time.Second
		cfg = *c
	}, nil)
	delivered := make(chan spool.ID, 1000)
	join(t, s, spool.StageParser, nil)
	join(t, s, spool.StageFilter, nil)
	deliver := join(t, s, spool.StageDeliver, func(id spool.ID) { delivered <- id })

	before := latencies(t, s, delivered)
	seeder := f.register("seeder")
	f.deferMany(seeder, "dead.example", *deadMessages)
	// Twice as many as the destination may have out, then its share of memory, are enough to see that it is at it.
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		deliver.mu.Lock()
		dead := deliver.dead
		deliver.mu.Unlock()
		if dead >= cfg.PerDestination {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs for the dead destination, want %d", dead, cfg.PerDestination)
		}
	}
	during := latencies(t, s, delivered)
	retry := message(t, "retry", "rcpt@zz.example")
	f.commit(seeder, &spool.Batch{Messages: []spool.Message{retry}, Waits: []spool.Wait{wait(retry.ID, "zz.example", false, 0)}})
	start := time.Now()
	wanted(t, delivered, retry.ID)
	t.Logf("%d messages wait for a dead destination: the median of others' latency is %s, before %s; the longest %s, before %s; a retry came after %s",
		*deadMessages, during[len(during)/2], before[len(before)/2], during[len(during)-1], before[len(before)-1], time.Since(start))
	deliver.mu.Lock()
	defer deliver.mu.Unlock()
	if deliver.dead > cfg.PerDestination {
		t.Errorf("%d jobs for one destination at a time, want at most %d", deliver.dead, cfg.PerDestination)
	}
	owned := f.sql("SELECT count(*)::text FROM deferred WHERE destination = 'dead.example' AND owner IS NOT NULL")
	var held int
	if _, err := fmt.Sscan(owned[0], &held); err != nil || held > cfg.Messages/2 {
		t.Errorf("%d of the dead destination's messages are in memory, which has room for %d", held, cfg.Messages)
	}
}

// latencies submits mail for other destinations, one after the other, and tells how long each took to be delivered.
func latencies(t *testing.T, s *spool.Spool, delivered <-chan spool.ID) []time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range 100 {
		m := message(t, fmt.Sprintf("mail %d", i), fmt.Sprintf("rcpt@d%d.example", i%10))
		done := make(chan error, 1)
		start := time.Now()
		s.Submit(spool.Submission{ID: m.ID, Envelope: m.Envelope, Content: m.Content, Deadline: start.Add(30 * time.Second)},
			func(_ spool.Receipt, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wanted(t, delivered, m.ID)
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}

func wanted(t *testing.T, delivered <-chan spool.ID, id spool.ID) {
	t.Helper()
	select {
	case got := <-delivered:
		if got != id {
			t.Fatalf("%s was delivered, want %s", got, id)
		}
	case <-time.After(patience):
		t.Fatalf("%s was not delivered within %s", id, patience)
	}
}
