package spooladmin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// Commander takes orders of operators.
type Commander interface {
	// Order makes a command durable and tells the spools.
	Order(ctx context.Context, id spool.ID, verb spool.Verb, by string) (command int64, err error)
	// CommandResult tells what came of it, and whether it is done.
	CommandResult(ctx context.Context, command int64) (result string, done bool, err error)
}

// commandWait is how long a call waits for its command to be executed.
const commandWait = 8 * time.Second

var verbs = map[adminv1.Command]spool.Verb{
	adminv1.Command_COMMAND_HOLD:    spool.VerbHold,
	adminv1.Command_COMMAND_RELEASE: spool.VerbRelease,
	adminv1.Command_COMMAND_CANCEL:  spool.VerbCancel,
	adminv1.Command_COMMAND_RETRY:   spool.VerbRetry,
	adminv1.Command_COMMAND_BOUNCE:  spool.VerbBounce,
}

// CommandMessage orders something about a message and waits until that is executed.
func (s *Server) CommandMessage(
	ctx context.Context, req *adminv1.CommandMessageRequest,
) (*adminv1.CommandMessageResponse, error) {
	id, err := parseID(req.GetId())
	if err != nil {
		return nil, err
	}
	verb, known := verbs[req.GetCommand()]
	if !known {
		return nil, status.Errorf(codes.InvalidArgument, "command %d is not known", req.GetCommand())
	}
	if s.commander == nil {
		return nil, status.Error(codes.Unimplemented, "this server takes no commands")
	}
	if _, err := s.reader.Get(ctx, id); err != nil {
		return nil, s.status(ctx, fmt.Errorf("reading message %s: %w", id, err))
	}
	command, err := s.commander.Order(ctx, id, verb, s.caller(ctx))
	if err != nil {
		return nil, s.status(ctx, fmt.Errorf("ordering %s of message %s: %w", verb, id, err))
	}
	for end, pause := time.Now().Add(commandWait), pollMin; ; pause = min(pause*3/2, pollMax) {
		result, done, err := s.commander.CommandResult(ctx, command)
		if err != nil {
			return nil, s.status(ctx, fmt.Errorf("asking for command %d: %w", command, err))
		}
		if done || time.Now().After(end) {
			return &adminv1.CommandMessageResponse{Done: done, Result: result}, nil
		}
		if !sleep(ctx, pause) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
