package services

import (
	"context"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/services/process"
)

// drainTimeout is how long a worker that stops may still take for the jobs it holds.
const drainTimeout = 30 * time.Second

// jobTimeouts bound what a worker may take for one job (promise P5). A delivery waits for others; the rest computes.
var jobTimeouts = map[spoolv1.Stage]time.Duration{
	spoolv1.Stage_STAGE_PARSER:  2 * time.Minute,
	spoolv1.Stage_STAGE_FILTER:  2 * time.Minute,
	spoolv1.Stage_STAGE_DELIVER: time.Hour,
}

// wireWorker makes a handler a worker of the spools.
func wireWorker(s *stage, kind spoolv1.Stage, capacity int, handle worker.Handler) error {
	conn, err := s.connect()
	if err != nil {
		return err
	}
	s.add(process.Unit{Name: s.name, StopTimeout: drainTimeout + 5*time.Second, Run: func(ctx context.Context) error {
		return worker.Run(ctx, conn, kind, capacity, handle,
			worker.WithLogger(s.log), worker.WithTracerProvider(s.provider),
			worker.WithDialer(s.dial), worker.WithDrainTimeout(drainTimeout), worker.WithJobTimeout(jobTimeouts[kind]))
	}})
	return nil
}
