package services

import (
	"context"

	"github.com/rohrpost/rohrpost/parser/parserrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// wireParser makes the parser a worker.
func wireParser(_ context.Context, s *stage) error {
	handler := parserrpc.HandlerWithTracer(s.cfg.Parser.Limits, s.provider)
	return wireWorker(s, spoolv1.Stage_STAGE_PARSER, s.cfg.parserCapacity(), handler)
}
