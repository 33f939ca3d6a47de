package spooltest

import (
	"slices"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// Audit looks whether the invariants of [spool.Store] hold for every message and held after every commit.
func (s *Store) Audit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.violation != nil {
		return s.violation
	}
	for id := range s.messages {
		if err := s.checkMessage(id); err != nil {
			return err
		}
	}
	return nil
}

// Messages returns the ids of all messages, oldest first.
func (s *Store) Messages() []spool.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]spool.ID, 0, len(s.messages))
	for id := range s.messages {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b spool.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// Message returns a message's row.
func (s *Store) Message(id spool.ID) (spool.Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[id]
	if m == nil {
		return spool.Message{}, false
	}
	return *m, true
}

// Refusals returns what was noted of refused messages, in order.
func (s *Store) Refusals() []spool.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refusals)
}

// Content returns a message's content.
func (s *Store) Content(id spool.ID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, _ := s.content(id)
	return slices.Clone(content)
}

// Outcome returns how a message ended; false where it has not.
func (s *Store) Outcome(id spool.ID) (spool.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.outcomes[id]
	return o, ok
}

// Attempts returns a message's attempt rows in order.
func (s *Store) Attempts(id spool.ID) []spool.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts[id])
}

// Waits returns a message's waiting rows.
func (s *Store) Waits(id spool.ID) []spool.Wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []spool.Wait
	for _, w := range s.waits[id] {
		rows = append(rows, w.Wait)
	}
	return rows
}

// Owners tells which incarnation the waiting rows of a message name, 0 for none; nil where it has none.
func (s *Store) Owners(id spool.ID) []spool.Incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var owners []spool.Incarnation
	for _, w := range s.waits[id] {
		owners = append(owners, w.owner)
	}
	return owners
}

// Journal returns all durable entries of a message's journal.
func (s *Store) Journal(id spool.ID) []*mailv1.JournalEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var journal []*mailv1.JournalEntry
	for _, a := range s.attempts[id] {
		journal = append(journal, a.Journal...)
	}
	return append(journal, s.outcomes[id].Journal...)
}

// Batches returns how many rows each commit so far had.
func (s *Store) Batches() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}
