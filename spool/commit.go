package spool

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// commits is the way of writes to the store. All but work is the loop's.
type commits struct {
	work     chan *commit
	pending  []*write // what waits for the next batch
	solo     []*write // what is committed alone, to find the row that the database refuses
	searches []Search
	refusals []Refusal
	dropped  int // refusals that were not noted, since the store was slow or away
	inFlight int
	// retryAt is when the store is tried again after it did not answer; zero where it does.
	retryAt time.Time
	fails   int
}

// maxSearches bounds the search columns that wait for a commit; they are dropped past it.
const maxSearches = 4096

func (c *commits) addSearch(s Search) {
	if len(c.searches) < maxSearches {
		c.searches = append(c.searches, s)
	}
}

// maxRefusals bounds the refusals that wait for a commit; they are dropped past it.
const maxRefusals = 1024

func (c *commits) addRefusal(r Refusal) {
	if len(c.refusals) >= maxRefusals {
		c.dropped++
		return
	}
	c.refusals = append(c.refusals, r)
}

// commit is one transaction.
type commit struct {
	inc    Incarnation
	writes []*write
	batch  *Batch
	span   trace.Span
}

// flush hands what is waiting to the store. There is no timer: whatever came while the transactions before were in
// flight forms the next one, so that an idle spool adds no delay and a busy one makes large batches.
func (s *Spool) flush(ctx context.Context) {
	c := &s.commits
	if !c.retryAt.IsZero() && s.opts.Now().Before(c.retryAt) {
		return
	}
	for c.inFlight < s.cfg.CommitsInFlight {
		var writes []*write
		if len(c.solo) > 0 {
			writes, c.solo = c.solo[:1:1], c.solo[1:]
		} else {
			writes = s.takeWrites(ctx)
		}
		// Where nothing else is to be written, refusals are noted one transaction at a time.
		if len(writes) == 0 && (len(c.refusals) == 0 || c.inFlight > 0 || s.core.inc == 0) {
			return
		}
		s.begin(ctx, writes)
	}
}

// takeWrites takes what fits into one transaction.
func (s *Spool) takeWrites(ctx context.Context) []*write {
	c := &s.commits
	var taken []*write
	rows, size := 0, 0
	n := 0
	for _, w := range c.pending {
		if w.accept && w.msg.aborted {
			n++
			s.apply(ctx, refused{write: w, err: errAway()}) // nobody waits for it any more
			continue
		}
		r, b := w.measure()
		if len(taken) > 0 && (rows+r > s.cfg.BatchRows || size+b > int(s.cfg.BatchSize)) {
			break
		}
		rows, size = rows+r, size+b
		taken = append(taken, w)
		n++
	}
	c.pending = slices.Delete(c.pending, 0, n)
	return taken
}

// measure tells how many rows a write has and about how many octets.
func (w *write) measure() (rows, size int) {
	for i := range w.Messages {
		size += len(w.Messages[i].Content)
	}
	for i := range w.Chunks {
		size += len(w.Chunks[i].Data)
	}
	rows = len(w.Messages) + len(w.Chunks) + len(w.Attempts) + len(w.Outcomes) + len(w.Waits) + len(w.Unwaits) +
		len(w.Releases) + len(w.Commands)
	return rows, size + 512*rows
}

// begin starts a transaction.
func (s *Spool) begin(ctx context.Context, writes []*write) {
	c := &s.commits
	b := &Batch{}
	for _, w := range writes {
		b.Chunks = append(b.Chunks, w.Chunks...)
		b.Messages = append(b.Messages, w.Messages...)
		b.Attempts = append(b.Attempts, w.Attempts...)
		b.Outcomes = append(b.Outcomes, w.Outcomes...)
		b.Waits = append(b.Waits, w.Waits...)
		b.Unwaits = append(b.Unwaits, w.Unwaits...)
		b.Releases = append(b.Releases, w.Releases...)
		b.Commands = append(b.Commands, w.Commands...)
	}
	b.Searches, c.searches = c.searches, nil
	b.Refusals, c.refusals = c.refusals, nil
	c.inFlight++
	s.commits.work <- &commit{inc: s.core.inc, writes: writes, batch: b, span: s.spans.commit(ctx, writes)}
}

// committer runs transactions until the context ends. The transaction itself does not run under it: a COMMIT must not be
// cancelled (design.md 4.3).
func (s *Spool) committer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-s.commits.work:
			err := s.reachKinds(c.batch, fault.AcceptWriting, fault.PermitWriting, fault.ResultWriting)
			if err == nil {
				err = s.commitUntilKnown(s.spans.within(ctx, c.span), c)
			}
			if err == nil {
				// A fault can't fail here any more: it is durable.
				_ = s.reachKinds(c.batch, fault.AcceptDurable, fault.PermitDurable, fault.ResultDurable)
			}
			s.spans.committed(c.span, err)
			s.post(item{do: func(ctx context.Context) { s.committed(ctx, c, err) }})
		}
	}
}

// reachKinds tells the faults of tests which kinds of rows a batch has.
func (s *Spool) reachKinds(b *Batch, accept, permit, result fault.Point) error {
	if s.opts.Faults == nil {
		return nil
	}
	var err error
	if len(b.Messages) > 0 {
		err = errors.Join(err, s.opts.Faults.Reach(accept))
	}
	has := func(kind AttemptKind) bool {
		return slices.ContainsFunc(b.Attempts, func(a Attempt) bool { return a.Kind == kind })
	}
	if has(AttemptPermit) {
		err = errors.Join(err, s.opts.Faults.Reach(permit))
	}
	if has(AttemptResult) || len(b.Outcomes) > 0 {
		err = errors.Join(err, s.opts.Faults.Reach(result))
	}
	return err
}

// commitUntilKnown commits a batch, and again where it is not known what came of it: the store finds out. From then on
// an outage no longer means that nothing was written; a refused row still does, for the rows of a batch are durable
// together.
func (s *Spool) commitUntilKnown(ctx context.Context, c *commit) error {
	unknown := false
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := s.store.Commit(ctx, c.inc, c.batch)
		var row *RowError
		switch {
		case errors.Is(err, ErrCommitUnknown):
			unknown = true
		case err == nil || !unknown || errors.Is(err, ErrFenced) || errors.As(err, &row):
			return err
		}
		s.log.WarnContext(ctx, "The outcome of a commit is not known yet", "error", err)
		if l := s.lease.Load(); l == nil || l.Incarnation != c.inc {
			return ErrFenced
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

// sleep waits, false where the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// committed is called by the loop with what became of a transaction.
func (s *Spool) committed(ctx context.Context, c *commit, err error) {
	s.commits.inFlight--
	if c.inc != s.core.inc {
		s.dropWrites(c.writes) // its incarnation is lost, and the core has forgotten the messages
		return
	}
	var row *RowError
	switch {
	case err == nil:
		s.commits.retryAt, s.commits.fails = time.Time{}, 0
		s.away.Store(false)
		s.tellDropped(ctx)
		for _, w := range c.writes {
			s.durable(ctx, w)
		}
	case errors.Is(err, ErrFenced):
		s.lookAtLease(c.inc, err)
		s.dropWrites(c.writes)
	case errors.As(err, &row):
		if row.Message != noID { // else they may be at fault
			s.keepNotes(c.batch, row.Message)
		}
		s.splitOut(ctx, c.writes, row)
	case errors.Is(err, ErrFull):
		s.keepNotes(c.batch, noID)
		s.putOff(ctx, c.writes, smtpreply.New(452, "4.3.1", "Insufficient system storage").Because(err))
	case errors.Is(err, ErrCommitUnknown):
		s.dropWrites(c.writes) // we are stopping; adoption finds what there is
	default:
		s.away.Store(true)
		s.lookAtLease(c.inc, err)
		s.keepNotes(c.batch, noID)
		s.putOff(ctx, c.writes, smtpreply.New(451, "4.3.0", "Temporary system problem, try again later").Because(err))
	}
}

// keepNotes puts the search columns and refusals of a batch that was not written into the next one, but for those of a
// message whose rows are refused.
func (s *Spool) keepNotes(b *Batch, refused ID) {
	for _, search := range b.Searches {
		if search.Message != refused {
			s.commits.addSearch(search)
		}
	}
	for i := range b.Refusals {
		if b.Refusals[i].Message != refused {
			s.commits.addRefusal(b.Refusals[i])
		}
	}
}

// tellDropped tells how many refusals were not noted, once the store is there again.
func (s *Spool) tellDropped(ctx context.Context) {
	if n := s.commits.dropped; n > 0 {
		s.log.WarnContext(ctx, "Refused messages were not noted: the store was slow or away", "messages", n)
		s.commits.dropped = 0
	}
}

func (s *Spool) durable(ctx context.Context, w *write) {
	if w.msg == nil {
		w.chunkDone(nil)
		return
	}
	s.spans.outcome(ctx, w, time.Unix(0, w.at), s.now())
	s.apply(ctx, written{write: w})
	if w.mayBeDue(s.now().Add(s.cfg.lookAhead())) {
		notifyChan(s.poke)
	}
}

// mayBeDue tells whether a message that has left memory may be wanted from the store before a time.
func (w *write) mayBeDue(before time.Time) bool {
	return w.last && (len(w.Releases) > 0 ||
		slices.ContainsFunc(w.Waits, func(row Wait) bool { return row.NextAt.Before(before) }))
}

// putOff refuses the submissions of a batch that was not written and keeps the rest for later.
func (s *Spool) putOff(ctx context.Context, writes []*write, reply *smtpreply.Error) {
	s.log.WarnContext(ctx, "The store does not take a batch", "error", reply)
	c := &s.commits
	c.fails++
	c.retryAt = s.opts.Now().Add(min(50*time.Millisecond<<min(c.fails, 10), 5*time.Second))
	var keep []*write
	for _, w := range writes {
		switch {
		case w.msg == nil:
			w.chunkDone(reply)
		case w.accept:
			s.apply(ctx, refused{write: w, err: reply})
		default:
			keep = append(keep, w)
		}
	}
	c.pending = append(keep, c.pending...)
}

// splitOut takes the writes with a row that the database refuses out of a batch. Where it is not known which that is,
// each write is tried alone.
func (s *Spool) splitOut(ctx context.Context, writes []*write, bad *RowError) {
	c := &s.commits
	var rest []*write
	found := false
	for _, w := range writes {
		if !w.touches(bad.Message) && len(writes) > 1 {
			rest = append(rest, w)
			continue
		}
		found = true
		s.refuseWrite(ctx, w, bad)
	}
	if found {
		c.pending = append(rest, c.pending...)
		return
	}
	c.solo = append(c.solo, rest...)
}

func (s *Spool) refuseWrite(ctx context.Context, w *write, bad *RowError) {
	if !errors.Is(bad, ErrExists) {
		s.log.ErrorContext(ctx, "The database refuses a row", "message_id", bad.Message, "error", bad.Err)
	}
	if w.msg == nil {
		w.chunkDone(smtpreply.OfMessage(bad))
		return
	}
	s.apply(ctx, refused{write: w, err: smtpreply.OfMessage(bad)})
}

// touches tells whether a write has rows of a message.
func (w *write) touches(id ID) bool {
	if id == noID {
		return false
	}
	if w.msg != nil && w.msg.row.ID == id {
		return true
	}
	return slices.ContainsFunc(w.Messages, func(m Message) bool { return m.ID == id }) ||
		slices.ContainsFunc(w.Chunks, func(c Chunk) bool { return c.Message == id })
}

// dropWrites forgets writes whose messages are no longer ours.
func (s *Spool) dropWrites(writes []*write) {
	for _, w := range writes {
		if w.msg == nil {
			w.chunkDone(errLost())
		}
	}
}
