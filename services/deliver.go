package services

import (
	"context"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/deliverrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// wireDeliver makes the deliverer a worker.
func wireDeliver(_ context.Context, s *stage) error {
	d, err := deliver.New(s.cfg.Deliver, deliver.Options{Logger: s.log, TracerProvider: s.provider})
	if err != nil {
		return err
	}
	s.own("deliver connections", d.Close)
	return wireWorker(s, spoolv1.Stage_STAGE_DELIVER, s.cfg.Deliver.Capacity, deliverrpc.Handler(d))
}
