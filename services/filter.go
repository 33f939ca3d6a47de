package services

import (
	"context"
	"fmt"

	"github.com/rohrpost/rohrpost/filter"
	"github.com/rohrpost/rohrpost/filter/filterrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services/resolver"
)

// wireFilter gives the filter the caching DNS resolver and makes it a worker.
func wireFilter(_ context.Context, s *stage) error {
	dns, err := resolver.New(s.cfg.Resolver, resolver.Options{})
	if err != nil {
		return fmt.Errorf("setting up the resolver: %w", err)
	}
	f, err := filter.New(s.cfg.Filter, filter.Options{Resolver: dns, Logger: s.log, TracerProvider: s.provider})
	if err != nil {
		return err
	}
	return wireWorker(s, spoolv1.Stage_STAGE_FILTER, s.cfg.Filter.MaxConcurrent, filterrpc.Handler(f))
}
