package spool

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/spool/fault"
)

// loop takes what is in the inbox, again and again: it is the one goroutine that changes the core and calls the sinks.
func (s *Spool) loop(ctx context.Context) {
	timer := time.NewTimer(s.cfg.Tick)
	defer timer.Stop()
	var spare []item
	var ticked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		// Not only when the timer fires: a loop that always has something to do never waits for it.
		if s.tickDue(ticked) {
			ticked = s.opts.Now()
			s.apply(ctx, tick{})
		}
		s.inboxMu.Lock()
		batch := s.inbox
		s.inbox = spare[:0]
		s.inboxMu.Unlock()
		for _, i := range batch {
			if i.do != nil {
				i.do(ctx)
				continue
			}
			s.apply(ctx, i.event)
		}
		clear(batch)
		spare = batch
		s.flush(ctx)
		s.flushSinks()
		timer.Reset(s.untilTick())
	}
}

// tickDue tells whether the core must hear that time has passed.
func (s *Spool) tickDue(last time.Time) bool {
	at := s.core.nextTimer()
	return !at.IsZero() && !s.now().Before(at) || s.opts.Now().Sub(last) >= s.cfg.Tick
}

// untilTick is how long the loop may sleep.
func (s *Spool) untilTick() time.Duration {
	wait := s.cfg.Tick
	if at := s.core.nextTimer(); !at.IsZero() {
		wait = min(wait, at.Sub(s.now()))
	}
	if !s.commits.retryAt.IsZero() {
		wait = min(wait, s.commits.retryAt.Sub(s.opts.Now()))
	}
	return max(wait, time.Millisecond)
}

// apply takes an event in and does what comes of it.
func (s *Spool) apply(ctx context.Context, ev event) {
	s.mu.Lock()
	decisions := s.core.apply(s.now(), ev)
	s.mu.Unlock()
	for i := range decisions {
		s.perform(ctx, &decisions[i])
	}
}

func (s *Spool) perform(ctx context.Context, d *decision) {
	switch d.kind {
	case decideSend:
		s.sendJob(ctx, d)
	case decidePermit:
		granted := d.granted && s.mayAct()
		s.tell(d.peer.worker, func(sink WorkerSink) { sink.AnswerPermit(d.token, granted) })
	case decideAck:
		s.tell(d.peer.worker, func(sink WorkerSink) { sink.AckResult(d.token, d.status) })
	case decideCancel:
		s.tell(d.peer.worker, func(sink WorkerSink) { sink.CancelJob(d.token, d.text) })
	case decideDrain:
		s.tell(d.peer.worker, func(sink WorkerSink) { sink.SendDrain() })
	case decideWrite:
		s.commits.pending = append(s.commits.pending, d.write)
	case decideAnswer:
		s.answer(d.waiter, d.receipt, d.err)
	case decideSearch:
		s.commits.addSearch(d.search)
	case decideRefusal:
		s.commits.addRefusal(*d.refusal)
	case decideLog:
		s.log.ErrorContext(ctx, d.text, "message_id", d.id, "error", d.err)
	}
}

// sendJob gives a job to its worker, unless the lease has run out since: then another may own the message.
func (s *Spool) sendJob(ctx context.Context, d *decision) {
	if !s.mayAct() {
		// Nothing was sent, so that the worker's credit is not used up: it outlives the incarnation.
		s.mu.Lock()
		d.peer.credits++
		s.mu.Unlock()
		return
	}
	_ = s.opts.Faults.Reach(fault.JobSend) // it stalls or exits, but can't fail
	s.spans.queue(ctx, d.job, d.readyAt, d.accepted, s.now())
	s.tell(d.peer.worker, func(sink WorkerSink) { sink.SendJob(d.job) })
}

// tell calls a worker's sink, which is flushed at the end of the turn.
func (s *Spool) tell(w *Worker, f func(WorkerSink)) {
	w.tell(f)
	if !w.told {
		w.told = true
		s.told = append(s.told, w)
	}
}

func (s *Spool) flushSinks() {
	for _, w := range s.told {
		w.told = false
		w.tell(WorkerSink.Flush)
	}
	clear(s.told)
	s.told = s.told[:0]
}

// answer tells a submitter what became of its message.
func (s *Spool) answer(w *waiter, r Receipt, err error) {
	s.backlog.Add(-w.size)
	s.spans.accepted(w.span, err)
	w.done(r, err)
}
