package spool

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// TestPromises drives the core through random histories and checks the promises P1 to P4 after every step: workers that
// die, answer late, twice or with tokens of others; writes in any order; incarnations that end with writes under way.
// At the end all is well again, and every accepted message must end.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			w.step()
			w.check()
		}
		w.finish()
	})
}

func (w *world) step() {
	switch rapid.SampledFrom([]string{
		"submit", "submit", "submit again", "commit", "commit", "commit", "join", "grant", "grant", "leave", "permit", "permit",
		"result", "result", "result", "again", "foreign", "progress", "time", "tick", "claim", "claim", "abort", "crash", "drain",
		"flow", "flow", "flow", "command", "suspend",
	}).Draw(w.t, "step") {
	case "submit":
		w.submit()
	case "submit again":
		w.submitAgain()
	case "commit":
		w.commit()
	case "join":
		w.join()
	case "grant":
		if p := w.anyPeer(); p != nil {
			w.apply(credited{peer: p, n: rapid.IntRange(1, 3).Draw(w.t, "credits")})
		}
	case "leave":
		if p := w.anyPeer(); p != nil && rapid.Bool().Draw(w.t, "really") {
			w.leave(p)
		}
	case "permit":
		if h := w.anyJob(); h != nil && h.peer != nil && h.Stage == StageDeliver && h.result == nil {
			w.apply(permitRequested{peer: h.peer, token: h.Token})
		}
	case "result":
		if h := w.anyJob(); h != nil && h.result == nil {
			w.decideResult(h)
			w.present(h)
		}
	case "again": // what was not acknowledged, or was, on whatever stream there is
		if h := w.anyJob(); h != nil && h.result != nil {
			w.present(h)
		}
	case "foreign": // another job's token
		if h, o := w.anyJob(), w.anyJob(); h != nil && o != nil && o.result != nil && h.Stage != o.Stage {
			if p := w.peerFor(o); p != nil && h.Stage != StageDeliver {
				w.apply(resulted{peer: p, token: h.Token, result: *o.result})
			}
		}
	case "progress":
		if h := w.anyJob(); h != nil && h.peer != nil {
			w.apply(progressed{peer: h.peer, token: h.Token})
		}
	case "time":
		w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 20, 90, 3600, 86400}).Draw(w.t, "seconds")) * time.Second)
		w.tick()
	case "tick":
		w.tick()
	case "claim":
		w.claim()
	case "abort":
		for id := range w.clients {
			w.apply(aborted{id: id})
			break
		}
	case "crash":
		if rapid.IntRange(0, 3).Draw(w.t, "really") == 0 {
			w.crash()
		}
	case "flow":
		w.flow()
	case "command":
		w.command()
	case "suspend":
		w.suspend()
	case "drain":
		if p := w.anyPeer(); p != nil && rapid.IntRange(0, 3).Draw(w.t, "really") == 0 {
			w.apply(drained{peer: p})
		}
	}
}

// flow brings messages as far as deliver, so that histories reach what lies behind.
func (w *world) flow() {
	for _, stage := range []Stage{StageParser, StageFilter, StageDeliver} {
		if !w.hasPeer(stage) {
			w.joinAs(stage, 5)
		}
	}
	for range 3 {
		w.commitAll()
		for _, h := range append([]*heldJob(nil), w.held...) {
			if h.Stage != StageDeliver && !h.over {
				w.goWell(h)
			}
		}
	}
	for _, h := range slices.Clone(w.held) {
		if h.Stage == StageDeliver && !h.granted && h.peer != nil && h.result == nil && rapid.Bool().Draw(w.t, "permit") {
			w.apply(permitRequested{peer: h.peer, token: h.Token})
		}
	}
	if rapid.Bool().Draw(w.t, "commit") {
		w.commitAll()
	}
}

func (w *world) commitAll() {
	for len(w.writes) > 0 {
		wr := w.writes[0]
		w.writes = w.writes[1:]
		w.commitOne(wr)
		w.check()
	}
}

func (w *world) join() {
	stage := rapid.SampledFrom([]Stage{StageParser, StageFilter, StageDeliver}).Draw(w.t, "stage")
	w.joinAs(stage, rapid.IntRange(0, 4).Draw(w.t, "credits"))
}

func (w *world) joinAs(stage Stage, credits int) *peer {
	p := &peer{
		stage: stage, name: stage.String(),
		instance: rapid.SampledFrom([]string{"", "one", "other"}).Draw(w.t, "instance"), // the same again: it came back
	}
	w.peers = append(w.peers, p)
	w.apply(joined{peer: p})
	w.apply(credited{peer: p, n: credits})
	return p
}

func (w *world) leave(p *peer) {
	w.peers = remove(w.peers, p)
	for _, h := range w.held {
		if h.peer == p {
			h.peer = nil
			h.over = h.over || !h.granted
		}
	}
	w.apply(leftPeer{peer: p})
}

func (w *world) anyPeer() *peer {
	if len(w.peers) == 0 {
		return nil
	}
	return w.peers[rapid.IntRange(0, len(w.peers)-1).Draw(w.t, "peer")]
}

func (w *world) anyJob() *heldJob {
	if len(w.held) == 0 {
		return nil
	}
	return w.held[rapid.IntRange(0, len(w.held)-1).Draw(w.t, "job")]
}

// peerFor returns a stream on which a job's result can be presented.
func (w *world) peerFor(h *heldJob) *peer {
	if h.peer != nil {
		return h.peer
	}
	for _, p := range w.peers {
		if p.stage == h.Stage {
			return p
		}
	}
	return nil
}

func (w *world) present(h *heldJob) {
	if p := w.peerFor(h); p != nil {
		w.apply(resulted{peer: p, token: h.Token, result: *h.result})
	}
}

// decideResult lets a worker do its job: it sends only with a permit.
func (w *world) decideResult(h *heldJob) {
	r := &WorkResult{}
	h.result = r
	if rapid.IntRange(0, 9).Draw(w.t, "fails") == 0 {
		r.Failure = "no"
		return
	}
	switch h.Stage {
	case StageParser:
		r.Parsed = &mailv1.ParsedMessage{Subject: "s"}
	case StageFilter:
		r.Verdict = &mailv1.Verdict{}
		for range h.Envelope.GetRecipients() {
			r.Verdict.Recipients = append(r.Verdict.Recipients, &mailv1.RecipientVerdict{
				Action: mailv1.Action(rapid.SampledFrom([]int32{1, 1, 1, 1, 2, 3, 4, 5}).Draw(w.t, "action")),
			})
		}
	default:
		w.decideAttempt(h, r)
	}
}

func (w *world) decideAttempt(h *heldJob, r *WorkResult) {
	r.Attempt = &mailv1.Attempt{Destination: h.Destination}
	if h.Bounce != nil {
		r.Notifications = w.notification(h)
		return
	}
	statuses := []mailv1.ResultStatus{
		mailv1.ResultStatus_RESULT_STATUS_TEMPORARY, mailv1.ResultStatus_RESULT_STATUS_PERMANENT,
		mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED,
	}
	if h.granted {
		statuses = append(statuses, mailv1.ResultStatus_RESULT_STATUS_DELIVERED,
			mailv1.ResultStatus_RESULT_STATUS_DELIVERED, mailv1.ResultStatus_RESULT_STATUS_UNKNOWN)
	}
	for _, i := range h.Recipients {
		status := rapid.SampledFrom(statuses).Draw(w.t, "status")
		w.happened(h, r, i, status)
	}
}

func (w *world) happened(h *heldJob, r *WorkResult, i int32, status mailv1.ResultStatus) {
	r.Attempt.Results = append(r.Attempt.Results, &mailv1.RecipientResult{Recipient: i, Status: status})
	c := w.clients[h.ID]
	if c == nil {
		return // a notification
	}
	switch status {
	case mailv1.ResultStatus_RESULT_STATUS_DELIVERED:
		c.sent[i]++
		c.told[i] = true
	case mailv1.ResultStatus_RESULT_STATUS_UNKNOWN:
		c.sent[i]++ // at worst
	case mailv1.ResultStatus_RESULT_STATUS_PERMANENT:
		if h.Envelope.GetSender() != "" && len(r.Notifications) == 0 {
			r.Notifications = w.notification(h)
		}
	default:
	}
}

func (w *world) notification(h *heldJob) []Notification {
	return []Notification{{
		Envelope: &mailv1.Envelope{Recipients: []*mailv1.Recipient{{Address: h.Envelope.GetSender()}}},
		Content:  []byte("dsn"),
	}}
}

// finish lets everything go well, until every message that is durable has ended.
func (w *world) finish() {
	for _, p := range append([]*peer(nil), w.peers...) {
		w.leave(p)
	}
	if rapid.Bool().Draw(w.t, "resume") { // otherwise it ends by its age
		w.suspensions = nil
		w.apply(suspensionsChanged{})
	}
	for round := 0; !w.allEnded(); round++ {
		if round == 1000 {
			for id, s := range w.messages {
				if s.outcome == nil {
					w.t.Errorf("promise P2: message %s does not end: owner %d of %d, rows %v", id, s.owner, w.inc, s.waits)
				}
			}
			w.t.FailNow()
		}
		for _, stage := range []Stage{StageParser, StageFilter, StageDeliver} {
			if !w.hasPeer(stage) {
				w.joinAs(stage, 1000)
			}
		}
		w.commitAll()
		for _, h := range append([]*heldJob(nil), w.held...) {
			if h.over {
				w.held = remove(w.held, h)
				continue
			}
			w.goWell(h)
		}
		if len(w.writes) == 0 {
			w.now = w.now.Add(time.Hour)
			w.tick()
			w.claim()
		}
		w.check()
	}
}

func (w *world) hasPeer(stage Stage) bool {
	for _, p := range w.peers {
		if p.stage == stage {
			return true
		}
	}
	return false
}

func (w *world) allEnded() bool {
	for _, s := range w.messages {
		if s.outcome == nil {
			return false
		}
	}
	return len(w.writes) == 0
}

func (w *world) goWell(h *heldJob) {
	if h.result == nil {
		r := &WorkResult{}
		switch {
		case h.Stage == StageParser:
			r.Parsed = &mailv1.ParsedMessage{}
		case h.Stage == StageFilter:
			r.Verdict = &mailv1.Verdict{}
			for range h.Envelope.GetRecipients() {
				r.Verdict.Recipients = append(r.Verdict.Recipients, &mailv1.RecipientVerdict{Action: mailv1.Action_ACTION_ACCEPT})
			}
		case h.Bounce != nil:
			r.Attempt = &mailv1.Attempt{}
			r.Notifications = w.notification(h)
		case !h.granted:
			if h.peer != nil {
				w.apply(permitRequested{peer: h.peer, token: h.Token})
			}
			return
		default:
			r.Attempt = &mailv1.Attempt{}
			for _, i := range h.Recipients {
				w.happened(h, r, i, mailv1.ResultStatus_RESULT_STATUS_DELIVERED)
			}
		}
		h.result = r
	}
	w.present(h)
}

// command lets an operator interfere with a message, wherever it is.
func (w *world) command() {
	if len(w.messages) == 0 {
		return
	}
	ids := slices.SortedFunc(maps.Keys(w.messages), func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	id := ids[rapid.IntRange(0, len(ids)-1).Draw(w.t, "message")]
	verb := rapid.SampledFrom([]Verb{VerbHold, VerbRelease, VerbCancel, VerbRetry, VerbBounce}).Draw(w.t, "verb")
	w.orders++
	e := ordered{inc: w.inc, commands: []Command{{ID: w.orders, Message: id, Verb: verb, By: "operator"}}}
	if s := w.messages[id]; s.outcome == nil && s.owner == 0 && len(s.waits) > 0 {
		e.messages = append(e.messages, w.take(s))
	}
	w.apply(e)
}

// suspend lets an operator suspend destinations, or resume them.
func (w *world) suspend() {
	w.suspensions = nil
	for _, text := range []string{"x.example", "*.example", "*"} {
		s := Suspension{Pattern: pattern.MustParse(text)}
		switch rapid.IntRange(0, 5).Draw(w.t, text) {
		case 0:
			w.suspensions = append(w.suspensions, s)
		case 1:
			s.Until = w.now.Add(time.Minute)
			w.suspensions = append(w.suspensions, s)
		default:
		}
	}
	w.apply(suspensionsChanged{w.suspensions})
}

func (w *world) suspended(destination string) bool {
	return slices.ContainsFunc(w.suspensions, func(s Suspension) bool { return !s.ended(w.now) && s.Pattern.Match(destination) })
}

// tick lets time pass, after which nothing for suspended destinations takes memory.
func (w *world) tick() {
	w.apply(tick{})
	for name, q := range w.core.sched.queues {
		if w.suspended(name) && q.ready.len() > 0 && name != bounceQueue {
			w.t.Fatalf("%d jobs are ready for %s, which is suspended", q.ready.len(), name)
		}
	}
}
