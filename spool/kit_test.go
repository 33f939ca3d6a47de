package spool_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
	"github.com/rohrpost/rohrpost/spool/spooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a spool on a store in memory, in a bubble of synctest: time passes only when everybody waits.
type rig struct {
	t     *testing.T
	store *spooltest.Store
	spool *spool.Spool
	stop  func()
	inc   spool.Incarnation
	sinks []*sink
}

// leaveAll ends all workers' streams.
func (r *rig) leaveAll() {
	for _, s := range r.sinks {
		s.leave()
	}
}

// bubble runs a test with a clock of its own, and audits the store at its end.
func bubble(t *testing.T, change func(*spool.Config), test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := spooltest.NewStore()
		r := startRig(t, store, "a", change)
		defer r.stop() // inside the bubble also where the test fails
		test(r)
		r.stop()
		store.SetFaults(spooltest.Faults{})
		if err := store.Audit(); err != nil {
			t.Errorf("promise P2: %v", err)
		}
	})
}

func startRig(t *testing.T, store *spooltest.Store, name string, change func(*spool.Config)) *rig {
	t.Helper()
	return startFaulty(t, store, name, change, nil)
}

// startFaulty is startRig with faults at named places.
func startFaulty(
	t *testing.T, store *spooltest.Store, name string, change func(*spool.Config), faults *fault.Faults,
) *rig {
	t.Helper()
	return startOn(t, store, change, spool.Options{Name: name, Faults: faults})
}

// startOn is startRig with options, to which it adds.
func startOn(t *testing.T, store *spooltest.Store, change func(*spool.Config), opts spool.Options) *rig {
	t.Helper()
	cfg := spool.DefaultConfig()
	cfg.Jitter, cfg.VerdictWait = 0, 0 // tests of what comes after; see judging_test.go
	if change != nil {
		change(&cfg)
	}
	opts.Address = opts.Name + ":1"
	opts.Logger, opts.TracerProvider = slog.New(slog.DiscardHandler), noop.NewTracerProvider()
	s, err := spool.New(cfg, store, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	r := &rig{t: t, store: store, spool: s}
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			defer r.leaveAll()
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, spool.ErrUnavailable) && !errors.Is(err, spool.ErrFenced) &&
				!errors.Is(err, fault.Err) {
				t.Errorf("Run: %v", err)
			}
		})
	}
	synctest.Wait()
	if hello, ok := s.Hello(); ok {
		r.inc = hello.Incarnation
	}
	return r
}

func newID() spool.ID {
	var id spool.ID
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|rand.Uint64()&0xfff|0x7000)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()&^(3<<62)|1<<63)
	return id
}

func submission(recipients ...string) spool.Submission {
	env := &mailv1.Envelope{Sender: "sender@source.example"}
	for _, r := range recipients {
		env.Recipients = append(env.Recipients, &mailv1.Recipient{Address: r})
	}
	id := newID()
	return spool.Submission{
		ID: id, Envelope: env, Content: []byte("Subject: " + id.String() + "\r\n\r\nHello.\r\n"),
		Deadline: time.Now().Add(30 * time.Second),
	}
}

type answer struct {
	receipt spool.Receipt
	err     error
}

// submit hands a message over; the channel gets the answer.
func (r *rig) submit(sub spool.Submission) chan answer {
	c := make(chan answer, 2)
	r.spool.Submit(sub, func(receipt spool.Receipt, err error) { c <- answer{receipt, err} })
	return c
}

// accept hands a message over and wants it accepted.
func (r *rig) accept(sub spool.Submission) spool.ID {
	r.t.Helper()
	if a := <-r.submit(sub); a.err != nil {
		r.t.Fatalf("submitting: %v", a.err)
	}
	return sub.ID
}

// sink is a worker that answers at once by a function; nil results are not sent.
type sink struct {
	rig    *rig
	worker *spool.Worker
	stage  spool.Stage
	handle func(s *sink, job *spool.Job) *spool.WorkResult

	mu      sync.Mutex
	jobs    []*spool.Job
	permits map[string]bool
	acks    map[string][]spool.AckStatus
	cancels map[string]string
	drained bool
	hellos  []spool.Hello
	inbox   chan func()
	done    chan struct{}
}

func (r *rig) join(stage spool.Stage, name string, credits int, handle func(*sink, *spool.Job) *spool.WorkResult) *sink {
	r.t.Helper()
	return r.joinAs(stage, name, "", credits, handle)
}

// joinAs is join for a worker that tells which start of it this is.
func (r *rig) joinAs(
	stage spool.Stage, name, instance string, credits int, handle func(*sink, *spool.Job) *spool.WorkResult,
) *sink {
	r.t.Helper()
	s := &sink{
		rig: r, stage: stage, handle: handle, permits: map[string]bool{}, acks: map[string][]spool.AckStatus{},
		cancels: map[string]string{}, inbox: make(chan func(), 4096), done: make(chan struct{}),
	}
	w, err := r.spool.Join(stage, name, instance, s)
	if err != nil {
		r.t.Fatalf("joining: %v", err)
	}
	s.worker = w
	inbox := s.inbox // leave may come before the goroutine does
	go func() {
		defer close(s.done)
		for f := range inbox {
			f()
		}
	}()
	r.sinks = append(r.sinks, s)
	w.Grant(credits)
	return s
}

// leave ends the stream.
func (s *sink) leave() {
	s.worker.Leave()
	s.mu.Lock()
	inbox := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	if inbox != nil {
		close(inbox)
		<-s.done
	}
}

func (s *sink) SendJob(job *spool.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, job)
	if s.inbox == nil || s.handle == nil {
		return
	}
	s.inbox <- func() {
		if s.stage == spool.StageDeliver && job.Bounce == nil {
			s.worker.RequestPermit(job.Token)
			return // the result follows the permit
		}
		s.answer(job)
	}
}

func (s *sink) answer(job *spool.Job) {
	if result := s.handle(s, job); result != nil {
		s.worker.Result(job.Token, *result)
		s.worker.Grant(1)
	}
}

func (s *sink) AnswerPermit(token []byte, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits[string(token)] = granted
	if s.inbox == nil || s.handle == nil || !granted {
		return
	}
	for _, job := range s.jobs {
		if string(job.Token) == string(token) {
			s.inbox <- func() { s.answer(job) }
		}
	}
}

func (s *sink) AckResult(token []byte, status spool.AckStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks[string(token)] = append(s.acks[string(token)], status)
}

func (s *sink) CancelJob(token []byte, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels[string(token)] = reason
}

func (s *sink) SendDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = true
}

func (s *sink) Flush() {}

func (s *sink) SendHello(hello spool.Hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hellos = append(s.hellos, hello)
}

// got returns the jobs so far.
func (s *sink) got() []*spool.Job {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*spool.Job(nil), s.jobs...)
}

// only returns the one job that came.
func (s *sink) only() *spool.Job {
	s.rig.t.Helper()
	jobs := s.got()
	if len(jobs) != 1 {
		s.rig.t.Fatalf("got %d jobs, want one", len(jobs))
	}
	return jobs[0]
}

func (s *sink) ack(token []byte) []spool.AckStatus {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acks[string(token)]
}

func (s *sink) permit(token []byte) (granted, answered bool) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	granted, answered = s.permits[string(token)]
	return granted, answered
}

func parse(*sink, *spool.Job) *spool.WorkResult {
	return &spool.WorkResult{Parsed: &mailv1.ParsedMessage{Subject: "Hello", MessageId: "m@source.example"}}
}

// judge is a filter that does the same with every recipient.
func judge(action mailv1.Action) func(*sink, *spool.Job) *spool.WorkResult {
	return func(_ *sink, job *spool.Job) *spool.WorkResult {
		v := &mailv1.Verdict{}
		for range job.Envelope.GetRecipients() {
			v.Recipients = append(v.Recipients, &mailv1.RecipientVerdict{Action: action, Rule: "test"})
		}
		return &spool.WorkResult{Verdict: v}
	}
}

// deliver is a deliver worker for which every attempt goes the same way.
func deliver(status mailv1.ResultStatus) func(*sink, *spool.Job) *spool.WorkResult {
	return func(_ *sink, job *spool.Job) *spool.WorkResult { return attempt(job, status) }
}

func attempt(job *spool.Job, status mailv1.ResultStatus) *spool.WorkResult {
	if job.Bounce != nil {
		return &spool.WorkResult{Attempt: &mailv1.Attempt{}, Notifications: notification(job)}
	}
	a := &mailv1.Attempt{Destination: job.Destination, Number: job.Attempt}
	reply := &mailv1.Reply{Code: 250, Text: "OK"}
	result := &spool.WorkResult{Attempt: a}
	switch status {
	case mailv1.ResultStatus_RESULT_STATUS_TEMPORARY:
		reply = &mailv1.Reply{Code: 451, EnhancedCode: "4.0.0", Text: "later"}
	case mailv1.ResultStatus_RESULT_STATUS_PERMANENT:
		reply = &mailv1.Reply{Code: 550, EnhancedCode: "5.1.1", Text: "no"}
		if job.Envelope.GetSender() != "" {
			result.Notifications = notification(job)
		}
	default:
	}
	for _, r := range job.Recipients {
		a.Results = append(a.Results, &mailv1.RecipientResult{Recipient: r, Status: status, Reply: reply})
	}
	return result
}

func notification(job *spool.Job) []spool.Notification {
	return []spool.Notification{{
		Envelope: &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: job.Envelope.GetSender()}}},
		Content:  []byte("Subject: Undelivered\r\n\r\n"),
	}}
}

// fronts joins a parser and a filter that accept everything.
func (r *rig) fronts() {
	r.join(spool.StageParser, "p", 100, parse)
	r.join(spool.StageFilter, "f", 100, judge(mailv1.Action_ACTION_ACCEPT))
}

// states tells how a message ended, recipient by recipient; nil where it has not.
func (r *rig) states(id spool.ID) []mailv1.RecipientState {
	synctest.Wait()
	o, ok := r.store.Outcome(id)
	if !ok {
		return nil
	}
	var states []mailv1.RecipientState
	for _, e := range o.Recipients {
		states = append(states, e.State)
	}
	return states
}

// events tells the durable journal's events of a message.
func (r *rig) events(id spool.ID) []string {
	synctest.Wait()
	var events []string
	for _, e := range r.store.Journal(id) {
		events = append(events, e.GetEvent())
	}
	return events
}

// unhurried makes the spool look at the store seldom, for tests in which days pass.
func unhurried(c *spool.Config) {
	c.Tick, c.Lease, c.AgainFor = 10*time.Second, time.Hour, 2*time.Hour
}
