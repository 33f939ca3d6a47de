package spooladmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
)

// Suspender keeps which destinations are suspended, and knows what waits for them.
type Suspender interface {
	// Suspend makes a suspension durable and tells the spools. It ends after length, or never by itself where that is 0.
	// [spool.ErrFull] where there are too many.
	Suspend(ctx context.Context, want spool.Suspension, length time.Duration) (spool.Suspension, error)
	// Resume ends a suspension. [spool.ErrNotFound] where that very pattern is not suspended.
	Resume(ctx context.Context, p pattern.Pattern) error
	// Suspensions lists those that have not ended, by pattern.
	Suspensions(ctx context.Context) ([]spool.Suspension, error)
	// Queues tells for which destinations most messages wait.
	Queues(ctx context.Context, limit int) ([]spool.Queue, error)
}

const (
	maxPattern      = 255
	maxReason       = 500
	defaultQueues   = 50
	maxQueues       = 1000
	noSuspenderText = "this server suspends nothing"
)

// SuspendDestination orders that nothing is sent to the destinations of a pattern.
func (s *Server) SuspendDestination(
	ctx context.Context, req *adminv1.SuspendDestinationRequest,
) (*adminv1.SuspendDestinationResponse, error) {
	p, err := parsePattern(req.GetPattern())
	if err != nil {
		return nil, err
	}
	length := req.GetLength()
	if length != nil && (length.CheckValid() != nil || length.AsDuration() <= 0) {
		return nil, status.Error(codes.InvalidArgument, "the length must be more than 0; leave it unset to suspend until it is resumed")
	}
	if len(req.GetReason()) > maxReason {
		return nil, status.Errorf(codes.InvalidArgument, "the reason is longer than %d octets", maxReason)
	}
	if s.suspender == nil {
		return nil, status.Error(codes.Unimplemented, noSuspenderText)
	}
	got, err := s.suspender.Suspend(ctx, spool.Suspension{Pattern: p, Reason: req.GetReason(), By: s.caller(ctx)}, length.AsDuration())
	if errors.Is(err, spool.ErrFull) {
		return nil, status.Errorf(codes.ResourceExhausted, "%d patterns are suspended; resume some, or name many destinations by one pattern",
			spool.MaxSuspensions)
	}
	if err != nil {
		return nil, s.status(ctx, fmt.Errorf("suspending %s: %w", p, err))
	}
	s.log.InfoContext(ctx, "an operator suspends destinations", "suspended", got.String(), "by", got.By, "reason", got.Reason)
	return &adminv1.SuspendDestinationResponse{Suspension: suspension(&got)}, nil
}

// ResumeDestination ends the suspension of a pattern.
func (s *Server) ResumeDestination(
	ctx context.Context, req *adminv1.ResumeDestinationRequest,
) (*adminv1.ResumeDestinationResponse, error) {
	p, err := parsePattern(req.GetPattern())
	if err != nil {
		return nil, err
	}
	if s.suspender == nil {
		return nil, status.Error(codes.Unimplemented, noSuspenderText)
	}
	err = s.suspender.Resume(ctx, p)
	if errors.Is(err, spool.ErrNotFound) {
		return nil, status.Errorf(codes.NotFound, "%s is not suspended", p)
	}
	if err != nil {
		return nil, s.status(ctx, fmt.Errorf("resuming %s: %w", p, err))
	}
	s.log.InfoContext(ctx, "an operator resumes destinations", "pattern", p.String(), "by", s.caller(ctx))
	return &adminv1.ResumeDestinationResponse{}, nil
}

// ListDestinations tells what is suspended, and for which destinations most messages wait.
func (s *Server) ListDestinations(
	ctx context.Context, req *adminv1.ListDestinationsRequest,
) (*adminv1.ListDestinationsResponse, error) {
	limit := int(req.GetLimit())
	if limit < 0 || limit > maxQueues {
		return nil, status.Errorf(codes.InvalidArgument, "limit %d is out of range; use 1 to %d", limit, maxQueues)
	}
	if limit == 0 {
		limit = defaultQueues
	}
	if s.suspender == nil {
		return nil, status.Error(codes.Unimplemented, noSuspenderText)
	}
	list, err := s.suspender.Suspensions(ctx)
	if err != nil {
		return nil, s.status(ctx, fmt.Errorf("reading suspensions: %w", err))
	}
	queues, err := s.suspender.Queues(ctx, limit)
	if err != nil {
		return nil, s.status(ctx, fmt.Errorf("reading queues: %w", err))
	}
	resp := &adminv1.ListDestinationsResponse{}
	for i := range list {
		resp.Suspensions = append(resp.Suspensions, suspension(&list[i]))
	}
	for i := range queues {
		resp.Queues = append(resp.Queues, queue(&queues[i], list))
	}
	return resp, nil
}

// parsePattern reads a pattern of destinations, which have no local part.
func parsePattern(text string) (pattern.Pattern, error) {
	p, err := pattern.Parse(text)
	switch {
	case err != nil:
		return p, status.Error(codes.InvalidArgument, err.Error())
	case p.Local() != "":
		return p, status.Errorf(codes.InvalidArgument, "pattern %q names an address; a destination is a domain, such as %s", text, p.Domain())
	case len(p.Domain()) > maxPattern:
		return p, status.Errorf(codes.InvalidArgument, "the pattern is longer than %d octets", maxPattern)
	}
	return p, nil
}

// tellSuspended says of recipients that wait whether their destination is suspended.
func (s *Server) tellSuspended(ctx context.Context, msg *adminv1.Message) error {
	waits := false
	for _, r := range msg.GetSummary().GetRecipients() {
		waits = waits || r.GetState() == mailv1.RecipientState_RECIPIENT_STATE_DEFERRED
	}
	if s.suspender == nil || !waits {
		return nil
	}
	list, err := s.suspender.Suspensions(ctx)
	if err != nil {
		return fmt.Errorf("reading suspensions: %w", err)
	}
	for _, r := range msg.GetSummary().GetRecipients() {
		if r.GetState() == mailv1.RecipientState_RECIPIENT_STATE_DEFERRED {
			r.Suspension = suspension(spool.SuspensionOf(list, spool.DestinationOf(r.GetAddress())))
		}
	}
	return nil
}

func suspension(s *spool.Suspension) *adminv1.Suspension {
	if s == nil {
		return nil
	}
	return &adminv1.Suspension{
		Pattern: s.Pattern.String(), Until: timestamp(s.Until), Reason: s.Reason, By: s.By, Since: timestamp(s.Since),
	}
}

func queue(q *spool.Queue, list []spool.Suspension) *adminv1.DestinationQueue {
	return &adminv1.DestinationQueue{
		Destination: q.Destination, Messages: q.Messages, Recipients: q.Recipients, Due: q.Due, NextAt: timestamp(q.NextAt),
		WaitingSince: timestamp(q.WaitingSince), LastReply: q.LastReply,
		Suspension: suspension(spool.SuspensionOf(list, q.Destination)),
	}
}
