package spool

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// drive is a core with one worker for each stage, in which every write is durable at once.
type drive struct {
	core *core
	now  time.Time
	peer map[Stage]*peer
	jobs []*Job
	acks map[string]AckStatus
	told map[string]bool // permits
	rows []*write
}

// judgedAfter is a configuration by which messages are judged once they are durable.
func judgedAfter() Config {
	c := DefaultConfig()
	c.VerdictWait = 0
	return c
}

func newDrive() *drive { return newDriveWith(judgedAfter()) }

func newDriveWith(cfg Config) *drive {
	d := &drive{
		core: newCore(cfg, "s", 1, [32]byte{1}), now: time.Unix(1_800_000_000, 0),
		peer: map[Stage]*peer{}, acks: map[string]AckStatus{}, told: map[string]bool{},
	}
	for _, stage := range []Stage{StageParser, StageFilter, StageDeliver} {
		d.peer[stage] = &peer{stage: stage, name: stage.String()}
		d.apply(joined{peer: d.peer[stage]})
		d.apply(credited{peer: d.peer[stage], n: 10})
	}
	return d
}

func (d *drive) apply(ev event) {
	var writes []*write
	for _, dec := range d.core.apply(d.now, ev) {
		switch dec.kind {
		case decideSend:
			d.jobs = append(d.jobs, dec.job)
		case decideAck:
			d.acks[string(dec.token)] = dec.status
		case decidePermit:
			d.told[string(dec.token)] = dec.granted
		case decideWrite:
			writes = append(writes, dec.write)
		default:
		}
	}
	for _, w := range writes {
		d.rows = append(d.rows, w)
		d.apply(written{write: w})
	}
}

func (d *drive) last() *Job { return d.jobs[len(d.jobs)-1] }

func (d *drive) result(job *Job, r WorkResult) AckStatus {
	d.apply(resulted{peer: d.peer[job.Stage], token: job.Token, result: r})
	return d.acks[string(job.Token)]
}

func oneRecipient() *mailv1.Envelope {
	return &mailv1.Envelope{Sender: "s@source.example", Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}
}

// toDeliver brings a message to its deliver job.
func (d *drive) toDeliver() (*message, *Job) {
	id := d.core.mintID(d.now)
	d.apply(submitted{
		row: Message{ID: id, Envelope: oneRecipient()}, waiter: &waiter{id: id, deadline: d.now.Add(time.Minute)},
	})
	d.result(d.last(), WorkResult{Parsed: &mailv1.ParsedMessage{}})
	d.result(d.last(), WorkResult{Verdict: &mailv1.Verdict{
		Recipients: []*mailv1.RecipientVerdict{{Action: mailv1.Action_ACTION_ACCEPT}},
	}})
	return d.core.messages[id], d.last()
}

func TestResultsThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		permit bool
		result WorkResult
		wait   WaitReason
	}{
		"a verdict for a deliver job":    {false, WorkResult{Verdict: &mailv1.Verdict{}}, WaitRetry},
		"a failure before the permit":    {false, WorkResult{Failure: "disk"}, WaitRetry},
		"a failure after the permit":     {true, WorkResult{Failure: "disk"}, WaitUnknown},
		"nothing said, before a permit":  {false, WorkResult{Attempt: &mailv1.Attempt{}}, WaitRetry},
		"nothing said, after the permit": {true, WorkResult{Attempt: &mailv1.Attempt{}}, WaitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive()
			_, job := d.toDeliver()
			if c.permit {
				d.apply(permitRequested{peer: d.peer[StageDeliver], token: job.Token})
				if !d.told[string(job.Token)] {
					t.Fatal("no permit")
				}
			}
			if ack := d.result(job, c.result); ack != AckCounted {
				t.Errorf("ack %d", ack)
			}
			w := d.rows[len(d.rows)-1]
			if len(w.Waits) != 1 || w.Waits[0].Reason != c.wait {
				t.Errorf("waits %+v, want one for %s", w.Waits, c.wait)
			}
		})
	}
}

func TestPermitIsForTheHolder(t *testing.T) {
	d := newDrive()
	_, job := d.toDeliver()
	other := &peer{stage: StageDeliver, name: "other"}
	d.apply(joined{peer: other})
	d.apply(permitRequested{peer: other, token: job.Token})
	if granted, told := d.told[string(job.Token)]; granted || !told {
		t.Errorf("granted %v, answered %v", granted, told)
	}
}

// A job that was given out before the database was found to have gone back in time is not sent, until the hold ends.
func TestNoPermitWhileHeld(t *testing.T) {
	d := newDrive()
	_, job := d.toDeliver()
	d.apply(holdChanged{held: true})
	d.apply(permitRequested{peer: d.peer[StageDeliver], token: job.Token})
	if granted, told := d.told[string(job.Token)]; granted || !told {
		t.Errorf("granted %v, answered %v", granted, told)
	}
	if d.last() != job {
		t.Error("a job was given out while held")
	}
	d.apply(holdChanged{held: false})
	if again := d.last(); again == job || again.ID != job.ID {
		t.Error("the job is not given out again")
	}
}

func TestStrangersComeAgainForAWhile(t *testing.T) {
	d := newDrive()
	other := newCore(DefaultConfig(), "o", 2, [32]byte{2})
	token := other.mintToken(other.mintID(d.now), StageDeliver)
	present := func() AckStatus {
		d.apply(resulted{peer: d.peer[StageDeliver], token: token})
		return d.acks[string(token)]
	}
	if got := present(); got != AckAgain {
		t.Errorf("first: %d, want again", got)
	}
	d.now = d.now.Add(DefaultConfig().AgainFor + time.Second)
	if got := present(); got != AckStale {
		t.Errorf("later: %d, want stale", got)
	}
	token = []byte("no token")
	if got := present(); got != AckStale {
		t.Errorf("garbage: %d, want stale", got)
	}
}

func TestVerdictOfTheWrongLength(t *testing.T) {
	d := newDrive()
	env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}, {Address: "r@y.example"}}}
	id := d.core.mintID(d.now)
	d.apply(submitted{row: Message{ID: id, Envelope: env}, waiter: &waiter{id: id, deadline: d.now.Add(time.Minute)}})
	d.result(d.last(), WorkResult{Parsed: &mailv1.ParsedMessage{}})
	n := len(d.jobs)
	d.result(d.last(), WorkResult{Verdict: &mailv1.Verdict{Recipients: []*mailv1.RecipientVerdict{{}}}})
	d.now = d.now.Add(2 * time.Second)
	d.apply(tick{})
	if len(d.jobs) != n+1 || d.last().Stage != StageFilter {
		t.Errorf("%d jobs after a verdict that can't be, last at %s", len(d.jobs)-n, d.last().Stage)
	}
}

// Case A4 and C6: a message that can't be loaded is put aside after a few tries.
func TestBrokenMessage(t *testing.T) {
	d := newDrive()
	id := d.core.mintID(d.now)
	wait := Wait{WaitKey: WaitKey{Message: id, Destination: DestinationAll}, Reason: WaitAll}
	for try := range loadTries {
		d.apply(loaded{inc: 1, messages: []*Stored{{Message: Message{ID: id}, Waits: []Wait{wait}, Err: ErrNotFound}}})
		w := d.rows[len(d.rows)-1]
		if last := try == loadTries-1; last != (len(w.Outcomes) == 1) {
			t.Fatalf("try %d: %d outcomes, %d waits", try+1, len(w.Outcomes), len(w.Waits))
		} else if last {
			ends := w.Outcomes[0].Recipients
			if len(ends) != 1 || ends[0].State != mailv1.RecipientState_RECIPIENT_STATE_QUARANTINED {
				t.Errorf("the outcome says %v, want one recipient quarantined: the database takes no outcome without", ends)
			}
			return
		}
		wait = w.Waits[0]
	}
}

func TestConfigNamesKeyAndMend(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatalf("the default: %v", err)
	}
	for key, change := range map[string]func(*Config){
		"memory":       func(c *Config) { c.Memory = 0 },
		"return_grace": func(c *Config) { c.ReturnGrace = c.JobLease },
		"again_for":    func(c *Config) { c.AgainFor = c.Lease },
		"back_off":     func(c *Config) { c.BackOff = nil },
		"jitter":       func(c *Config) { c.Jitter = 1 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: %v", key, err)
		}
	}
	c := DefaultConfig()
	c.BackOff = []time.Duration{time.Minute, c.MaxAge}
	if err := c.Validate(); err == nil {
		t.Error("a wait as long as max_age")
	}
}

// A message that is claimed while it is submitted again, and whose second row the database refuses, is ours by the claim:
// nobody else would load it any more (promise P2).
func TestClaimedWhileSubmittedAgain(t *testing.T) {
	d := newDrive()
	env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}
	id := d.core.mintID(d.now)
	w := &waiter{id: id, deadline: d.now.Add(time.Minute)}
	var accept *write
	for _, dec := range d.core.apply(d.now, submitted{row: Message{ID: id, Envelope: env}, waiter: w}) {
		if dec.kind == decideWrite {
			accept = dec.write
		}
	}
	all := Wait{WaitKey: WaitKey{Message: id, Destination: DestinationAll}, Reason: WaitAll}
	d.apply(loaded{inc: 1, messages: []*Stored{{Message: Message{ID: id, Owner: 7, Envelope: env, Accepted: d.now}, Waits: []Wait{all}}}})
	var answer *decision
	for _, dec := range d.core.apply(d.now, refused{write: accept, err: &RowError{Message: id, Err: ErrExists}}) {
		if dec.kind == decideAnswer {
			answer = &dec
		}
	}
	m := d.core.messages[id]
	if m == nil || m.life != lifeLive || m.front == nil {
		t.Fatalf("the claimed message is not on its way: %+v", m)
	}
	if answer == nil || answer.err != nil {
		t.Errorf("its submitter got %+v, want acceptance", answer)
	}
}

// What a row on its way to the store carries is still told to operators: they never see a state without its story.
func TestLiveTellsWhatIsBeingWritten(t *testing.T) {
	m := newMessage(Message{Envelope: &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}})
	c := newDrive().core
	m.life = lifeLive
	c.keep(m)
	c.note(m, eventDeferred, bySpool, nil, "")
	w := c.record(m, c.newAttempt(m, AttemptNote), nil)
	c.push(w)
	if l, ok := c.live(m.row.ID); !ok || len(l.Journal) != 1 {
		t.Errorf("while it is being written: %v", l.Journal)
	}
	w.last = false
	written{w}.apply(c)
	if l, ok := c.live(m.row.ID); !ok || len(l.Journal) != 0 {
		t.Errorf("once it is durable: %v", l.Journal)
	}
}

// A message that is submitted again to another spool, or after a restart, is answered at once where it is accepted for sure
// or withdrawn for sure: a client that is told 451 sends it twice (promise P3).
func TestSubmittedAgainElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  int32 // the reply's code; 0: accepted
	}{"settled": {ErrSettled, 0}, "withdrawn": {ErrWithdrawn, 451}} {
		d := newDrive()
		id := d.core.mintID(d.now)
		w := &waiter{id: id, deadline: d.now.Add(time.Minute)}
		env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}
		var accept *write
		for _, dec := range d.core.apply(d.now, submitted{row: Message{ID: id, Envelope: env}, waiter: w}) {
			if dec.kind == decideWrite {
				accept = dec.write
			}
		}
		var answer *decision
		for _, dec := range d.core.apply(d.now, refused{write: accept, err: &RowError{Message: id, Err: c.cause}}) {
			if dec.kind == decideAnswer {
				answer = &dec
			}
		}
		if answer == nil {
			t.Fatalf("%s: no answer", name)
		}
		var code int32
		if answer.err != nil {
			code = smtpreply.From(answer.err).Reply().GetCode()
		}
		if code != c.want {
			t.Errorf("%s: got %d, want %d", name, code, c.want)
		}
		if len(d.core.messages) != 0 {
			t.Errorf("%s: the message is kept", name)
		}
	}
}

// Promise P3: a permit stays open until its own result, though another job for the same destination has one.
func TestPermitOfTheOtherJob(t *testing.T) {
	const a, b = 0, 1
	permit := func(token string, recipients ...int32) Attempt {
		return Attempt{Kind: AttemptPermit, Destination: "x.example", Number: 1, Token: []byte(token), Recipients: recipients}
	}
	result := func(token string, recipients ...int32) Attempt {
		r := permit(token, recipients...)
		r.Kind = AttemptResult
		return r
	}
	for name, c := range map[string]struct {
		rows []Attempt
		want []string // tokens whose result is waited for
	}{
		"its own result":                {[]Attempt{permit("1", a), result("1", a)}, nil},
		"none":                          {[]Attempt{permit("1", a)}, []string{"1"}},
		"that of the other job":         {[]Attempt{permit("1", a), permit("2", b), result("1", a)}, []string{"2"}},
		"that of the job in its place":  {[]Attempt{permit("1", a, b), permit("2", a, b), result("2", a, b)}, nil},
		"neither it nor its place's":    {[]Attempt{permit("1", a), permit("2", a)}, []string{"2"}},
		"a result from before, of both": {[]Attempt{result("0", a, b), permit("1", a, b)}, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive()
			env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "a@x.example"}, {Address: "b@x.example"}}}
			id := d.core.mintID(d.now)
			all := Wait{WaitKey: WaitKey{Message: id, Destination: DestinationAll}, Reason: WaitAll}
			d.apply(loaded{inc: 1, messages: []*Stored{{
				Message: Message{ID: id, Envelope: env, Accepted: d.now}, Attempts: c.rows, Waits: []Wait{all},
			}}})
			var got []string
			for _, del := range d.core.messages[id].deliveries {
				if del.state == unitOut {
					got = append(got, string(del.job.token))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("results of %v are waited for, want %v", got, c.want)
			}
		})
	}
}

func TestIDsGrow(t *testing.T) {
	d := newDrive()
	last := d.core.mintID(d.now)
	for i := range 10_000 { // more than fit into the millisecond
		id := d.core.mintID(d.now.Add(-time.Duration(i) * time.Second)) // clocks are set back
		if bytes.Compare(id[:], last[:]) <= 0 {
			t.Fatalf("%s after %s", id, last)
		}
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv7", id)
		}
		last = id
	}
	if sec, _ := last.Time().UnixTime(); sec != d.now.Unix() {
		t.Errorf("the last id is of second %d, want %d", sec, d.now.Unix())
	}
}

// A job that must not be sent any more, since the lease is over, costs its worker no credit: the worker stays when the
// incarnation goes.
func TestUnsentJobCostsNoCredit(t *testing.T) {
	s, err := New(DefaultConfig(), nil, Options{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{stage: StageParser, worker: &Worker{}}
	s.apply(t.Context(), joined{peer: p})
	s.apply(t.Context(), credited{peer: p, n: 1})
	env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}
	id := s.core.mintID(s.now())
	s.core.inc = 1 // and no lease
	s.apply(t.Context(), loaded{inc: 1, messages: []*Stored{{Message: Message{ID: id, Envelope: env, Accepted: s.now()}}}})
	if len(p.jobs) != 1 || p.credits != 1 {
		t.Errorf("%d jobs, %d credits, want one of each", len(p.jobs), p.credits)
	}
}

// A worker that hangs must not hold up what is to run alone, where another is free (promise P6).
func TestLoneJobGoesToAFreeWorker(t *testing.T) {
	d := newDrive()
	hangs, dies, free := d.peer[StageParser], &peer{stage: StageParser, name: "dies"}, &peer{stage: StageParser, name: "free"}
	submit := func() {
		env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: "r@x.example"}}}
		id := d.core.mintID(d.now)
		d.apply(submitted{row: Message{ID: id, Envelope: env}, waiter: &waiter{id: id, deadline: d.now.Add(time.Minute)}})
	}
	submit()
	d.apply(joined{peer: dies})
	hangs.credits = 0
	d.apply(credited{peer: dies, n: 10})
	submit()
	d.apply(leftPeer{peer: dies})
	if !hangs.reserved {
		t.Fatal("the lone job waits for nobody")
	}
	d.apply(joined{peer: free})
	d.apply(credited{peer: free, n: 1})
	if len(free.jobs) != 1 || hangs.reserved {
		t.Errorf("the free worker has %d jobs, the one that hangs is reserved: %v", len(free.jobs), hangs.reserved)
	}
}

// Deadlines hold also while the loop always has something to do (promise P6).
func TestTimersUnderLoad(t *testing.T) {
	s, err := New(DefaultConfig(), nil, Options{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.loop(ctx) }()
	due, late, fired := s.now().Add(50*time.Millisecond), 0, make(chan int, 1)
	var busy item
	busy.do = func(context.Context) {
		if s.now().After(due) {
			late++
		}
		s.post(busy)
	}
	s.post(item{do: func(context.Context) { s.core.timers.start(due, func() { fired <- late }) }})
	s.post(busy)
	if rounds := <-fired; rounds > 2 {
		t.Errorf("the timer fired %d rounds of the loop after it was due", rounds)
	}
	cancel()
	<-ended
}

// Promise P2: where one recipient of a destination is under way while another is put off, the row that both share names
// both, for it is all that an adopter finds of them.
func TestRowOfADestinationKeepsWhoIsUnderWay(t *testing.T) {
	d := newDrive()
	id := d.core.mintID(d.now)
	env := &mailv1.Envelope{Recipients: []*mailv1.Recipient{
		{Address: "a@x.example"}, {Address: "b@x.example"}, {Address: "c@y.example"}, // the last keeps it in memory
	}}
	const accept = mailv1.Action_ACTION_ACCEPT
	d.apply(submitted{row: Message{ID: id, Envelope: env}, waiter: &waiter{id: id, deadline: d.now.Add(time.Minute)}})
	filtered := func(second mailv1.Action) {
		jobs := slices.DeleteFunc(slices.Clone(d.jobs), func(j *Job) bool { return j.Stage != StageFilter })
		d.result(jobs[len(jobs)-1], WorkResult{Verdict: &mailv1.Verdict{Recipients: []*mailv1.RecipientVerdict{
			{Action: accept}, {Action: second}, {Action: accept},
		}}})
	}
	putOff := func(recipient int32) {
		i := slices.IndexFunc(d.jobs, func(j *Job) bool { return slices.Equal(j.Recipients, []int32{recipient}) })
		d.result(d.jobs[i], WorkResult{Attempt: &mailv1.Attempt{Results: []*mailv1.RecipientResult{
			{Recipient: recipient, Status: mailv1.ResultStatus_RESULT_STATUS_TEMPORARY},
		}}})
	}
	d.result(d.last(), WorkResult{Parsed: &mailv1.ParsedMessage{}})
	filtered(mailv1.Action_ACTION_DEFER)
	putOff(0)
	for out := len(d.jobs); len(d.jobs) < out+2; { // the first is tried again, and the second filtered again
		d.now = d.now.Add(time.Second)
		d.apply(tick{})
		for _, job := range d.jobs {
			d.apply(progressed{peer: d.peer[job.Stage], token: job.Token})
		}
	}
	filtered(accept)
	putOff(1)
	waits := d.rows[len(d.rows)-1].Waits
	if len(waits) != 1 || !slices.Equal(waits[0].Recipients, []int32{0, 1}) {
		t.Errorf("waits %+v, want one that names both", waits)
	}
}
