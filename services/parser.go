package services

import (
	"context"
	"runtime"

	"github.com/rohrpost/rohrpost/parser/parserrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/worker"
	"github.com/rohrpost/rohrpost/services/process"
)

// wireParser makes the parser a worker.
func wireParser(_ context.Context, s *stage) error {
	handler := parserrpc.HandlerWithTracer(s.cfg.Parser.Limits, s.provider)
	return wireWorker(s, spoolv1.Stage_STAGE_PARSER, s.cfg.parserCapacity(), handler)
}

// wirePoliteParser makes the parser a worker that gives way to the other services of its process (promise P6).
func wirePoliteParser(ctx context.Context, s *stage) error {
	capacity, nice := s.cfg.parserCapacity(), s.cfg.Parser.Nice
	if nice == 0 {
		return wireParser(ctx, s)
	}
	threads, err := process.NewPolite(min(capacity, max(1, runtime.GOMAXPROCS(0)-1)), nice)
	if err != nil {
		s.log.WarnContext(ctx, "parser.nice has no effect", "error", err)
		return wireParser(ctx, s)
	}
	s.own("parser threads", func() error { threads.Close(); return nil })
	handle := parserrpc.HandlerWithTracer(s.cfg.Parser.Limits, s.provider)
	return wireWorker(s, spoolv1.Stage_STAGE_PARSER, capacity, func(ctx context.Context, job *worker.Job) (r *spoolv1.Result, err error) {
		threads.Do(func() { r, err = handle(ctx, job) })
		return r, err
	})
}
