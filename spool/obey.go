package spool

import (
	"context"
	"errors"
	"time"
)

const (
	// commandPoll is how often commands and suspensions are looked for where none was heard of.
	commandPoll = 2 * time.Second
	// commandLimit is how many are taken at a time.
	commandLimit = 100
)

// hear listens for commands and suspensions, again and again, until the context ends.
func (s *Spool) hear(ctx context.Context) {
	for ctx.Err() == nil {
		// What went wrong does no harm: commands are looked for anyway.
		_ = s.store.HearCommands(ctx, func() { notifyChan(s.ordered) })
		sleep(ctx, commandPoll)
	}
}

// obey executes commands of operators and learns what they suspend, until the context ends.
func (s *Spool) obey(ctx context.Context) {
	every := time.NewTicker(commandPoll)
	defer every.Stop()
	for {
		if err := s.obeyOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "Commands can't be executed now", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-s.ordered:
		}
	}
}

func (s *Spool) obeyOnce(ctx context.Context) error {
	l := s.lease.Load()
	if l == nil || s.away.Load() || s.stopping.Load() || !s.mayAct() {
		return nil
	}
	if err := s.readSuspensions(ctx, l.Incarnation); err != nil {
		return err
	}
	commands, messages, err := s.store.OpenCommands(ctx, l.Incarnation, commandLimit)
	if err != nil {
		if errors.Is(err, ErrFenced) {
			s.lookAtLease(l.Incarnation, err)
		}
		return err
	}
	if len(commands) == 0 {
		return nil
	}
	s.post(item{do: func(ctx context.Context) {
		s.apply(ctx, ordered{inc: l.Incarnation, messages: messages, commands: commands})
	}})
	return nil
}
