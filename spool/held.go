package spool

import "context"

// epochsKept is how many epochs are remembered: one would do, unless its file is written and the database's row is not.
const epochsKept = 16

// loadEpochs reads what is known of earlier starts. Where that can't be read, the database may have gone back in time: the
// spool registers as one that says so, and nothing is sent until an operator resumes.
func (s *Spool) loadEpochs(ctx context.Context) {
	if s.opts.Epochs == nil {
		return
	}
	epochs, err := s.opts.Epochs.Load()
	if err != nil {
		s.log.ErrorContext(ctx, "Epochs can't be read: a restored database would not be noticed", "error", err)
		s.unread = err.Error()
		return
	}
	s.epochs = epochs
}

// keepEpoch remembers an incarnation that was registered, before anything is done in its name.
func (s *Spool) keepEpoch(ctx context.Context, l Lease) {
	s.epochs = append(s.epochs, Epoch{Incarnation: l.Incarnation, ID: l.Epoch, Time: l.Now})
	s.epochs = s.epochs[max(0, len(s.epochs)-epochsKept):]
	s.unread = ""
	s.saveEpochs(ctx)
}

// saveEpochs writes the epochs down. Where it fails, each renewal of the lease tries again.
func (s *Spool) saveEpochs(ctx context.Context) {
	if s.opts.Epochs == nil {
		return
	}
	err := s.opts.Epochs.Save(s.epochs)
	if err != nil && !s.unsaved {
		s.log.ErrorContext(ctx, "Epochs can't be written: a restored database may not be noticed", "error", err)
	}
	s.unsaved = err != nil
}

// tellHeld tells the core whether anything may be sent.
func (s *Spool) tellHeld(ctx context.Context, held bool) {
	if held {
		s.log.ErrorContext(ctx, "The database has gone back in time, as by a restored backup, or may have. Nothing is sent, since it may have "+
			"been sent already, until `rohrpost spool resume`")
	}
	s.post(item{event: holdChanged{held: held}})
	if !held {
		notifyChan(s.poke)
	}
}

// Held tells whether nothing is sent, since the database has gone back in time.
func (s *Spool) Held() bool {
	l := s.lease.Load()
	return l != nil && l.Held
}

// holdChanged says whether anything may be sent.
type holdChanged struct{ held bool }

func (e holdChanged) apply(c *core) { c.held = e.held }
