package spooltest

import (
	"context"
	"slices"

	"github.com/rohrpost/rohrpost/spool"
)

// Suspend sets what is suspended. No spool hears of it: each finds it by looking.
func (s *Store) Suspend(list ...spool.Suspension) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspensions = list
}

// Suspensions is part of [spool.Store].
func (s *Store) Suspensions(ctx context.Context) ([]spool.Suspension, error) {
	if err := s.call(ctx, "Suspensions", 0); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Clone(s.suspensions), nil
}

// suspended tells whether a row is left alone since its destination is suspended.
func (s *Store) suspended(w *wait, limits spool.ClaimLimits) bool {
	if w.Destination[0] == '!' || !w.ExpiresAt.After(s.Now()) {
		return false
	}
	for _, p := range limits.Suspended {
		if p.Match(w.Destination) {
			return true
		}
	}
	return false
}
