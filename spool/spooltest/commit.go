package spooltest

import (
	"context"
	"errors"
	"fmt"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// Commit is part of [spool.Store].
func (s *Store) Commit(ctx context.Context, inc spool.Incarnation, b *spool.Batch) error {
	if err := s.call(ctx, "Commit", inc); err != nil {
		return err
	}
	fault := s.faults.Commit
	s.mu.Unlock()
	if fault != nil {
		apply, err := fault(inc, b)
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.faulty(inc, b, apply, err)
		}
	}
	if err := s.call(ctx, "", inc); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.commit(inc, b)
}

func (s *Store) faulty(inc spool.Incarnation, b *spool.Batch, apply bool, err error) error {
	if i := s.incarnations[inc]; i == nil || i.fenced {
		return spool.ErrFenced
	}
	if apply {
		if err := s.commit(inc, b); err != nil {
			return err
		}
	}
	if errors.Is(err, spool.ErrCommitUnknown) {
		s.known[b] = s.known[b] || apply
	}
	return err
}

// commit makes a batch durable. A batch that is in already, though its committer does not know, is looked up, as the
// real store does it.
func (s *Store) commit(inc spool.Incarnation, b *spool.Batch) error {
	if s.known[b] {
		return nil
	}
	for i := range b.Messages {
		if err := s.mayInsert(inc, b.Messages[i].ID); err != nil {
			return err
		}
	}
	for i := range b.Outcomes {
		if _, ended := s.outcomes[b.Outcomes[i].Message]; ended {
			return &spool.RowError{Message: b.Outcomes[i].Message, Err: errors.New("it has an outcome already")}
		}
		if len(b.Outcomes[i].Recipients) == 0 {
			return &spool.RowError{Message: b.Outcomes[i].Message, Err: errors.New("its outcome names no recipient")}
		}
	}
	s.insert(b)
	s.apply(inc, b)
	s.batches = append(s.batches, len(b.Messages)+len(b.Attempts)+len(b.Outcomes)+len(b.Chunks))
	if err := s.check(b); err != nil && s.violation == nil {
		s.violation = err
	}
	return nil
}

func (s *Store) mayInsert(inc spool.Incarnation, id spool.ID) error {
	m := s.messages[id]
	if m == nil {
		return nil
	}
	o, ended := s.outcomes[id]
	if !ended && s.ownedBy(m, inc) {
		return nil
	}
	err := spool.ErrExists
	switch {
	case ended && o.Recipients[0].State == mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN:
		err = spool.ErrWithdrawn
	case ended, len(s.attempts[id]) > 0, len(s.waits[id]) > 0:
		err = spool.ErrSettled
	}
	return &spool.RowError{Message: id, Err: err}
}

func (s *Store) insert(b *spool.Batch) {
	for _, c := range b.Chunks {
		if s.chunks[c.Message] == nil {
			s.chunks[c.Message] = map[int32]spool.Chunk{}
		}
		s.chunks[c.Message][c.Seq] = c
	}
	for i := range b.Messages {
		m := b.Messages[i]
		if s.messages[m.ID] == nil {
			s.messages[m.ID] = &m
		}
	}
	for _, a := range b.Attempts {
		s.attempts[a.Message] = append(s.attempts[a.Message], a)
	}
	for _, o := range b.Outcomes {
		s.outcomes[o.Message] = o
	}
	for _, r := range b.Searches {
		s.searches[r.Message] = r
	}
	s.refusals = append(s.refusals, b.Refusals...)
}

func (s *Store) apply(inc spool.Incarnation, b *spool.Batch) {
	for _, w := range b.Waits {
		if s.waits[w.Message] == nil {
			s.waits[w.Message] = map[string]*wait{}
		}
		s.waits[w.Message][w.Destination] = &wait{Wait: w}
		owner := spool.Incarnation(0)
		if w.Owned {
			owner = inc
		}
		for _, r := range s.waits[w.Message] {
			r.owner = owner
		}
	}
	for _, key := range b.Unwaits {
		delete(s.waits[key.Message], key.Destination)
		if len(s.waits[key.Message]) == 0 {
			delete(s.waits, key.Message)
		}
	}
	for _, d := range b.Commands {
		s.done[d.Command] = d.Result
	}
	for _, id := range b.Releases {
		for _, r := range s.waits[id] {
			r.owner = 0
		}
	}
}

// check looks whether the invariants of [spool.Store] hold for what a batch has touched.
func (s *Store) check(b *spool.Batch) error {
	for i := range b.Attempts {
		if err := s.checkMessage(b.Attempts[i].Message); err != nil {
			return err
		}
	}
	for _, key := range b.Unwaits {
		if err := s.checkMessage(key.Message); err != nil {
			return err
		}
	}
	for i := range b.Outcomes {
		if err := s.checkMessage(b.Outcomes[i].Message); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) checkMessage(id spool.ID) error {
	m := s.messages[id]
	if m == nil {
		return fmt.Errorf("rows of message %s, which there is none of", id)
	}
	if _, ended := s.outcomes[id]; ended {
		if len(s.waits[id]) > 0 {
			return fmt.Errorf("message %s has ended and still waits", id)
		}
		return nil
	}
	var owner spool.Incarnation
	first := true
	for _, w := range s.waits[id] {
		if !first && w.owner != owner {
			return fmt.Errorf("rows of message %s have the owners %d and %d", id, owner, w.owner)
		}
		owner, first = w.owner, false
	}
	if i := s.incarnations[m.Owner]; len(s.waits[id]) == 0 && (i == nil || i.fenced) {
		return fmt.Errorf("message %s has neither a waiting row nor a live owner", id)
	}
	return nil
}
