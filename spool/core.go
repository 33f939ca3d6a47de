package spool

import (
	"math/rand/v2"
	"time"
)

// core is the state of all messages that this incarnation holds: events go in, decisions come out. It does no I/O, reads
// no clock and starts no goroutine, so that a test can drive it through every order of events. It is not safe for
// concurrent use: the engine guards it.
type core struct {
	cfg   Config
	spool string
	inc   Incarnation
	// rng makes tokens, ids and jitter. It is seeded from outside, in production by the system's random source.
	rng    *rand.Rand
	serial uint64
	lastID uint64 // milliseconds and a counter of 12 bits, see mintID
	now    time.Time

	messages map[ID]*message
	bytes    int64 // about what messages take in memory
	// diverting says that new messages wait in the store, since memory was full and older ones wait there still.
	diverting bool
	stopping  bool
	held      bool // nothing may be sent, see Lease.Held
	nextSweep time.Time

	suspensions []Suspension // as the store has them; also those that have ended
	nextLift    *timer       // when the next of them ends

	expected map[ID][]*waiter // submissions of messages that another incarnation made durable
	pace     time.Duration    // about how long verdicts take, see judgesFirst
	judging  int              // messages that are judged before they are durable
	// judgingOctets is the content of those.
	judgingOctets int64
	recent        recentHashes
	fresh         *fresh
	ended         recentIDs
	commands      map[int64]bool       // that are being executed
	orders        map[ID][]Command     // for the messages that are just being loaded
	doubts        map[string]*doubtful // by instance: workers whose stream broke
	strangers     map[string]time.Time // tokens of other incarnations, since when they are presented

	jobs   map[string]*job // by token: all that are with a worker or may come back
	peers  []*peer
	stages [StageDeliver + 1]stageQueue
	sched  scheduler
	leases leaseList
	timers timerHeap

	out []decision
}

func newCore(cfg Config, spool string, inc Incarnation, seed [32]byte) *core {
	c := &core{
		cfg: cfg, spool: spool, fresh: newFresh(int64(cfg.Memory)),
		// A cipher with a secret seed: tokens can't be guessed.
		rng: rand.New(rand.NewChaCha8(seed)), //nolint:gosec // ChaCha8 is seeded by crypto/rand and made for this
	}
	c.reset(inc)
	return c
}

// reset forgets everything but the workers and what is suspended.
func (c *core) reset(inc Incarnation) {
	c.inc, c.bytes, c.diverting = inc, 0, false
	c.judging, c.judgingOctets = 0, 0
	c.fresh.clear()
	c.messages = map[ID]*message{}
	c.expected = map[ID][]*waiter{}
	c.ended = recentIDs{}
	c.strangers = map[string]time.Time{}
	c.commands = map[int64]bool{}
	c.doubts = map[string]*doubtful{}
	c.jobs = map[string]*job{}
	c.stages = [StageDeliver + 1]stageQueue{}
	c.sched = newScheduler(c.cfg)
	c.leases = leaseList{}
	c.timers = nil
	c.suspend()
}

// event is something that happened outside.
type event interface{ apply(c *core) }

// apply takes an event in and tells what to do. The slice is valid until the next call.
func (c *core) apply(now time.Time, ev event) []decision {
	c.now = now
	clear(c.out)
	c.out = c.out[:0]
	ev.apply(c)
	if !c.stopping {
		c.dispatch()
	}
	return c.out
}

// room is how many more messages the core would take, were they small.
func (c *core) room() int {
	return max(0, min(c.cfg.Messages-len(c.messages), int((int64(c.cfg.Memory)-c.bytes)/messageCost)))
}

// permitted counts the jobs whose worker may pass the point of no return, or soon may.
func (c *core) permitted() int {
	n := 0
	for _, j := range c.jobs {
		if j.permit != permitNone {
			n++
		}
	}
	return n
}

// decisionKind says what a decision is.
type decisionKind uint8

const (
	decideSend    decisionKind = iota + 1 // peer, job, readyAt, accepted
	decidePermit                          // peer, token, granted
	decideAck                             // peer, token, status
	decideCancel                          // peer, token, text
	decideDrain                           // peer
	decideWrite                           // write
	decideAnswer                          // waiter, receipt, err
	decideSearch                          // search
	decideRefusal                         // refusal
	decideLog                             // id, text, err
)

// decision is one thing to do. Which fields count stands at its kind.
type decision struct {
	kind     decisionKind
	peer     *peer
	job      *Job
	readyAt  time.Time
	accepted time.Time
	token    []byte
	granted  bool
	status   AckStatus
	text     string
	write    *write
	waiter   *waiter
	receipt  Receipt
	err      error
	search   Search
	refusal  *Refusal
	id       ID
}

func (c *core) decide(d decision) { c.out = append(c.out, d) }

func (c *core) ack(p *peer, token []byte, status AckStatus) {
	if p != nil && !p.gone {
		c.decide(decision{kind: decideAck, peer: p, token: token, status: status})
	}
}

// tick lets time pass.
type tick struct{}

func (tick) apply(c *core) {
	c.timers.run(c.now)
	c.endLeases()
	c.parkSuspended()
	if c.now.Before(c.nextSweep) {
		return
	}
	c.nextSweep = c.now.Add(time.Minute)
	c.sweep()
}

// sweep looks for messages that grew too old where no timer watches them, and forgets old tokens.
func (c *core) sweep() {
	for _, m := range c.messages {
		if m.life == lifeLive && !c.now.Before(c.expiry(m)) {
			c.expireQueued(m)
		}
	}
	c.forgetDoubts()
	for token, since := range c.strangers {
		if c.now.Sub(since) > 2*c.cfg.AgainFor {
			delete(c.strangers, token)
		}
	}
}

// nextTimer is when the core wants the next tick; the zero time if it does not care.
func (c *core) nextTimer() time.Time {
	var at time.Time
	if len(c.timers) > 0 {
		at = c.timers[0].at
	}
	if j := c.leases.front; j != nil && (at.IsZero() || j.leaseEnd.Before(at)) {
		at = j.leaseEnd
	}
	return at
}
