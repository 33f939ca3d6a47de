package spooladmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// How often a wait looks: soon at first, since most mail is through within milliseconds, then less often.
const (
	pollMin = 20 * time.Millisecond
	pollMax = 250 * time.Millisecond
)

// WaitMessage waits until a message has reached a state.
func (s *Server) WaitMessage(
	ctx context.Context, req *adminv1.WaitMessageRequest,
) (*adminv1.WaitMessageResponse, error) {
	find, err := s.finder(req)
	if err != nil {
		return nil, err
	}
	for _, state := range req.GetUntil() {
		if state == adminv1.MessageState_MESSAGE_STATE_UNSPECIFIED || !knownState(state) {
			return nil, status.Errorf(codes.InvalidArgument, "until state %d is not known", state)
		}
	}
	timeout := req.GetTimeout().AsDuration()
	if timeout < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "timeout %s must not be negative", timeout)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	msg, err := s.wait(ctx, find, req.GetUntil())
	if err != nil {
		return nil, s.status(ctx, err)
	}
	return &adminv1.WaitMessageResponse{Message: msg}, nil
}

// finder tells how to find the message: its error is spool.ErrNotFound while there is none.
func (s *Server) finder(req *adminv1.WaitMessageRequest) (func(ctx context.Context) (spool.ID, error), error) {
	switch by := req.GetBy().(type) {
	case *adminv1.WaitMessageRequest_Id:
		id, err := parseID(by.Id)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (spool.ID, error) { return id, nil }, nil
	case *adminv1.WaitMessageRequest_HeaderMessageId:
		headerID := trimBrackets(by.HeaderMessageId)
		if headerID == "" {
			break
		}
		return func(ctx context.Context) (spool.ID, error) {
			id, err := s.reader.FindByHeaderMessageID(ctx, headerID)
			if err != nil {
				return id, fmt.Errorf("looking for Message-ID %q: %w", headerID, err)
			}
			return id, nil
		}, nil
	}
	return nil, status.Error(codes.InvalidArgument, "want the message's id or its header_message_id")
}

func (s *Server) wait(
	ctx context.Context, find func(context.Context) (spool.ID, error), until []adminv1.MessageState,
) (*adminv1.Message, error) {
	for pause := pollMin; ; pause = min(pause*3/2, pollMax) {
		id, err := find(ctx)
		if err == nil {
			var msg *adminv1.Message
			msg, err = s.message(ctx, id)
			if err == nil && (len(until) == 0 || slices.Contains(until, msg.GetSummary().GetState())) {
				if err = s.tellSuspended(ctx, msg); err == nil {
					return msg, nil
				}
			}
		}
		// A database that is away for a moment ends no wait: its messages are there when it comes back.
		if err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrUnavailable) {
			return nil, err
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// sleep waits; false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
