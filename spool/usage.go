package spool

import (
	"context"
	"fmt"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// watchUsage finds out whether the store has room for more mail. What was accepted goes on whatever it says.
func (s *Spool) watchUsage(ctx context.Context) error {
	if s.cfg.MaxWaiting == 0 && s.cfg.MaxDatabase == 0 {
		return nil
	}
	u, err := s.store.Usage(ctx, s.cfg.MaxWaiting+1)
	if err != nil {
		return fmt.Errorf("asking for the store's usage: %w", err)
	}
	full := s.cfg.MaxWaiting > 0 && u.Waiting > s.cfg.MaxWaiting ||
		s.cfg.MaxDatabase > 0 && u.Bytes > int64(s.cfg.MaxDatabase)
	if was := s.full.Swap(full); was != full {
		s.log.WarnContext(ctx, "The store's room for new mail has changed", "full", full, "waiting", u.Waiting, "bytes", u.Bytes)
	}
	return nil
}

func errFull() error { return smtpreply.New(452, "4.3.1", "Insufficient system storage") }
