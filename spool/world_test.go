package spool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// world is everything around the core in the property test: a database, workers that really send or not, and clients.
// It knows the truth, so that it can check the promises.
type world struct {
	t    *rapid.T
	cfg  Config
	now  time.Time
	core *core
	inc  Incarnation
	seed byte

	writes []*write // handed over and not committed
	peers  []*peer
	held   []*heldJob // with workers, or whose results have not been acknowledged

	messages map[ID]*stored
	clients  map[ID]*client
	nextID   uint64
	orders   int64

	suspensions []Suspension
}

// stored is a message in the database.
type stored struct {
	row      Message
	attempts []Attempt
	outcome  *Outcome
	waits    map[string]Wait
	owner    Incarnation // of the waiting rows
	ended    map[int32]mailv1.RecipientState
	unknown  map[int32]int // durable entries that say so
}

// client is who submitted a message, and what really became of it.
type client struct {
	envelope *mailv1.Envelope
	asked    int // how often it was submitted
	answers  int
	accepted bool
	crashed  bool          // an incarnation was lost while the message was there
	sent     map[int32]int // how often each recipient really got it
	told     map[int32]bool
}

// heldJob is a job as its worker knows it.
type heldJob struct {
	*Job
	peer    *peer
	granted bool
	result  *WorkResult // once the worker has made up its mind
	over    bool
}

func newWorld(t *rapid.T) *world {
	cfg := DefaultConfig()
	cfg.VerdictWait = rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "verdict_wait")
	cfg.Messages, cfg.PerDestination = 6, 1 // so that memory is short, and a destination has its share at two
	cfg.Tick = rapid.SampledFrom([]time.Duration{200 * time.Millisecond, 20 * time.Second}).Draw(t, "tick")
	w := &world{
		t: t, cfg: cfg, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		messages: map[ID]*stored{}, clients: map[ID]*client{},
	}
	w.start()
	return w
}

// start begins a new incarnation, which adopts what the one before left.
func (w *world) start() {
	w.inc++
	w.seed++
	w.core = newCore(w.cfg, "s", w.inc, [32]byte{w.seed})
	w.peers = nil
	w.apply(suspensionsChanged{w.suspensions})
	for _, s := range w.messages {
		if s.outcome != nil {
			continue
		}
		if len(s.waits) == 0 || s.owner != 0 {
			if _, there := s.waits[DestinationAll]; !there {
				s.waits[DestinationAll] = Wait{
					WaitKey: WaitKey{Message: s.row.ID, Destination: DestinationAll}, Reason: WaitAll, NextAt: w.now,
				}
			}
		}
		s.owner = 0
	}
}

// crash ends the incarnation. Each write under way became durable or not.
func (w *world) crash() {
	for _, wr := range w.writes {
		if rapid.Bool().Draw(w.t, "durable at crash") {
			w.store(wr)
		}
	}
	w.writes = nil
	for _, c := range w.clients {
		c.crashed = true
	}
	for _, h := range w.held {
		h.peer = nil
		if h.Stage != StageDeliver || !h.granted {
			h.over = true // the worker's stream is gone, and it holds nothing worth presenting
		}
	}
	w.start()
}

func (w *world) apply(ev event) {
	for _, d := range slices.Clone(w.core.apply(w.now, ev)) {
		switch d.kind {
		case decideWrite:
			w.writes = append(w.writes, d.write)
		case decideSend:
			if d.job.Stage == StageDeliver && d.job.Bounce == nil && w.suspended(d.job.Destination) {
				w.t.Fatalf("message %s goes to %s, which is suspended", d.job.ID, d.job.Destination)
			}
			w.held = append(w.held, &heldJob{Job: d.job, peer: d.peer})
		case decidePermit:
			w.permit(d.token, d.granted)
		case decideAck:
			for _, h := range w.held {
				if string(h.Token) == string(d.token) && d.status != AckAgain {
					h.over = true
				}
			}
		case decideCancel:
			for _, h := range w.held {
				if string(h.Token) == string(d.token) && !h.granted {
					h.over = true
				}
			}
		case decideAnswer:
			c := w.clients[d.waiter.id]
			c.answers++
			c.accepted = c.accepted || d.err == nil
			if c.answers > c.asked {
				w.t.Fatalf("message %s: its client was answered twice", d.waiter.id)
			}
			if reply := smtpreply.From(d.err); c.asked > 1 && reply != nil && !reply.Temporary() {
				w.t.Fatalf("promise P3: message %s was submitted again and is refused: %v", d.waiter.id, d.err)
			}
			if s := w.messages[d.waiter.id]; d.err == nil && s == nil {
				w.t.Fatalf("promise P1: message %s was accepted and is not durable", d.waiter.id)
			}
		default:
		}
	}
	w.held = slices.DeleteFunc(w.held, func(h *heldJob) bool { return h.over && h.result == nil })
}

// permit checks promise P3 whenever a worker may send: whoever may have got the message has a durable entry that says so.
func (w *world) permit(token []byte, granted bool) {
	for _, h := range w.held {
		if string(h.Token) != string(token) {
			continue
		}
		h.granted = granted
		if !granted {
			h.over = true
			continue
		}
		c, s := w.clients[h.ID], w.messages[h.ID]
		for _, r := range h.Recipients {
			if c != nil && c.sent[r] > s.unknown[r] {
				w.t.Fatalf("promise P3: recipient %d of %s got it %d times, and only %d times that is not known",
					r, h.ID, c.sent[r], s.unknown[r])
			}
			if isEnded(s.ended[r]) {
				w.t.Fatalf("promise P4: a permit for recipient %d of %s, which has ended", r, h.ID)
			}
		}
		if c != nil && c.answers > 0 && !c.accepted && !c.crashed {
			w.t.Fatalf("message %s was refused and is sent", h.ID)
		}
	}
}

// store makes a write durable.
func (w *world) store(wr *write) {
	for _, m := range wr.Messages {
		if w.messages[m.ID] == nil {
			w.messages[m.ID] = &stored{
				row: m, waits: map[string]Wait{}, ended: map[int32]mailv1.RecipientState{}, unknown: map[int32]int{},
			}
		}
	}
	for _, a := range wr.Attempts {
		s := w.messages[a.Message]
		if s.outcome != nil {
			w.t.Fatalf("message %s has ended and goes on", a.Message)
		}
		s.attempts = append(s.attempts, a)
		for _, e := range a.Ended {
			w.ended(s, e)
		}
		s.journal(a.Journal)
	}
	for _, o := range wr.Outcomes {
		s := w.messages[o.Message]
		if s.outcome != nil {
			w.t.Fatalf("message %s ends twice", o.Message)
		}
		s.outcome = &o
		for _, e := range o.Recipients {
			if _, before := s.ended[e.Recipient]; !before {
				w.ended(s, e)
			}
		}
		s.journal(o.Journal)
	}
	for _, row := range wr.Waits {
		s := w.messages[row.Message]
		s.waits[row.Destination] = row
		s.owner = 0
		if row.Owned {
			s.owner = w.inc
		}
	}
	for _, key := range wr.Unwaits {
		delete(w.messages[key.Message].waits, key.Destination)
	}
	for _, id := range wr.Releases {
		w.messages[id].owner = 0
	}
}

func (w *world) ended(s *stored, e RecipientEnd) {
	if was, before := s.ended[e.Recipient]; before {
		w.t.Fatalf("promise P4: recipient %d of %s ends as %v and as %v", e.Recipient, s.row.ID, was, e.State)
	}
	if !isEnded(e.State) {
		w.t.Fatalf("recipient %d of %s ends as %v", e.Recipient, s.row.ID, e.State)
	}
	c := w.clients[s.row.ID]
	if e.State == mailv1.RecipientState_RECIPIENT_STATE_DELIVERED && c != nil && !c.told[e.Recipient] {
		w.t.Fatalf("recipient %d of %s is delivered, which no worker said", e.Recipient, s.row.ID)
	}
	s.ended[e.Recipient] = e.State
}

func (s *stored) journal(entries []*mailv1.JournalEntry) {
	for _, e := range entries {
		if e.GetEvent() == eventUnknown {
			for _, r := range e.GetRecipients() {
				s.unknown[r]++
			}
		}
	}
}

// checkJudging looks whether what is counted of the messages that are being judged is true.
func (w *world) checkJudging() {
	n, octets := 0, int64(0)
	for _, m := range w.core.messages {
		if m.life == lifeJudging {
			n++
			octets += int64(len(m.row.Content))
		}
	}
	if n != w.core.judging || octets != w.core.judgingOctets {
		w.t.Fatalf("%d messages of %d octets are judged, counted are %d of %d", n, octets, w.core.judging, w.core.judgingOctets)
	}
}

// check looks whether promise P2 holds now.
func (w *world) check() {
	w.checkJudging()
	for id, s := range w.messages {
		if s.outcome != nil {
			if len(s.waits) > 0 {
				w.t.Fatalf("message %s has ended and waits", id)
			}
			continue
		}
		inMemory := w.core.messages[id] != nil
		if s.owner == w.inc && !inMemory {
			w.t.Fatalf("promise P2: message %s is ours by its rows %v and not in memory", id, s.waits)
		}
		if len(s.waits) == 0 && (s.row.Owner != w.inc || !inMemory && !w.underWay(id)) {
			w.t.Fatalf("promise P2: message %s has no owner, no row and no outcome", id)
		}
		if len(s.waits) > 0 {
			w.checkCover(s)
		}
	}
}

func (w *world) underWay(id ID) bool {
	return slices.ContainsFunc(w.writes, func(wr *write) bool {
		return slices.ContainsFunc(wr.Messages, func(m Message) bool { return m.ID == id })
	})
}

// checkCover looks whether an adopter would find every recipient that has not ended, where the rows alone tell.
func (w *world) checkCover(s *stored) {
	if s.row.Owner == w.inc && s.owner == w.inc {
		return
	}
	if _, all := s.waits[DestinationAll]; all {
		return
	}
	covered := map[int32]bool{}
	for _, row := range s.waits {
		for _, r := range row.Recipients {
			covered[r] = true
		}
	}
	for i := range s.row.Envelope.GetRecipients() {
		if r := int32(i); !covered[r] && !isEnded(s.ended[r]) {
			w.t.Fatalf("promise P2: recipient %d of %s stands in no row of %v", r, s.row.ID, s.waits)
		}
	}
}

func (w *world) mint() ID {
	w.nextID++
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(w.now.UnixMilli())<<16|0x7000)
	binary.BigEndian.PutUint64(id[8:], w.nextID|1<<63)
	return id
}

func (w *world) submit() {
	env := &mailv1.Envelope{Sender: rapid.SampledFrom([]string{"", "a@source.example"}).Draw(w.t, "sender")}
	for i := range rapid.IntRange(1, 3).Draw(w.t, "recipients") {
		domain := rapid.SampledFrom([]string{"x.example", "y.example"}).Draw(w.t, "domain")
		env.Recipients = append(env.Recipients, &mailv1.Recipient{Address: fmt.Sprintf("r%d@%s", i, domain)})
	}
	id := w.mint()
	w.clients[id] = &client{envelope: env, sent: map[int32]int{}, told: map[int32]bool{}}
	w.submitAs(id)
}

// submitAgain is a gateway that did not hear what became of a message.
func (w *world) submitAgain() {
	ids := slices.SortedFunc(maps.Keys(w.clients), func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.DeleteFunc(ids, func(id ID) bool {
		c := w.clients[id]
		return c.answers > 0 && (c.accepted || !c.crashed)
	})
	if len(ids) > 0 {
		w.submitAs(ids[rapid.IntRange(0, len(ids)-1).Draw(w.t, "message")])
	}
}

func (w *world) submitAs(id ID) {
	c := w.clients[id]
	c.asked++
	w.apply(submitted{
		row:    Message{ID: id, Envelope: c.envelope, Content: []byte("x"), Size: 1, Hash: hashOf(c.envelope, id[:])},
		waiter: &waiter{id: id, deadline: w.now.Add(30 * time.Second)},
		again:  c.asked > 1,
	})
}

// commit makes one of the writes durable.
func (w *world) commit() {
	if len(w.writes) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.writes)-1).Draw(w.t, "write")
	wr := w.writes[i]
	w.writes = slices.Delete(w.writes, i, i+1)
	if wr.accept && rapid.IntRange(0, 9).Draw(w.t, "refused") == 0 {
		w.apply(refused{write: wr, err: errAway()})
		return
	}
	w.commitOne(wr)
}

// commitOne makes a write durable, unless it has a message that another incarnation made durable.
func (w *world) commitOne(wr *write) {
	if s := w.messages[wr.msg.row.ID]; wr.accept && s != nil {
		w.apply(refused{write: wr, err: s.exists()})
		return
	}
	w.store(wr)
	w.apply(written{write: wr})
}

func (s *stored) exists() error {
	if s.outcome == nil {
		return smtpreply.From(ErrExists)
	}
	for _, state := range s.ended {
		if state == mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN {
			return smtpreply.From(ErrWithdrawn)
		}
	}
	return smtpreply.From(ErrSettled)
}

func (w *world) claim() {
	var got []*Stored
	for _, s := range w.messages {
		due := slices.ContainsFunc(slices.Collect(mapsValues(s.waits)), func(r Wait) bool {
			return !r.NextAt.After(w.now.Add(w.cfg.lookAhead())) && (!w.core.sched.suspends(r.Destination) || !r.ExpiresAt.After(w.now))
		})
		if s.outcome != nil || s.owner != 0 || !due || w.core.room() <= len(got) {
			continue
		}
		if m := w.core.messages[s.row.ID]; m != nil && m.life != lifeLeaving && m.life != lifeCommitting {
			w.t.Fatalf("promise P4: message %s is in memory and has rows without owner", s.row.ID)
		}
		got = append(got, w.take(s))
	}
	w.apply(loaded{inc: w.inc, messages: got, more: len(got) > 0})
}

// take makes a message that waits ours and loads it.
func (w *world) take(s *stored) *Stored {
	s.owner = w.inc
	st := &Stored{Message: s.row, Attempts: slices.Clone(s.attempts)}
	for _, r := range s.waits {
		st.Waits = append(st.Waits, r)
	}
	return st
}

func mapsValues(m map[string]Wait) func(func(Wait) bool) {
	return func(yield func(Wait) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}
