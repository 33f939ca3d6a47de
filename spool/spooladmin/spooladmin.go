// Package spooladmin shows operators what the spool holds: it serves rohrpost.admin.v1.AdminService from what is durable
// and from what the owner of a message knows beyond that.
package spooladmin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// Options is what a server needs beside its sources. The zero value is fit for use.
type Options struct {
	// Logger is slog.Default where nil.
	Logger *slog.Logger
	// Heartbeat is how long a watch is silent at most; 3 s where 0.
	Heartbeat time.Duration
	// Commander takes orders; where it is nil there are none.
	Commander Commander
	// Suspender keeps what is suspended; where it is nil nothing can be.
	Suspender Suspender
	// Caller tells who makes a call, for the journal; nobody in particular where nil.
	Caller func(context.Context) string
}

// Server serves AdminService. Its methods may be called concurrently.
type Server struct {
	adminv1.UnimplementedAdminServiceServer

	reader    spool.Reader
	live      func(spool.ID) (spool.Live, bool)
	log       *slog.Logger
	heartbeat time.Duration
	commander Commander
	suspender Suspender
	caller    func(context.Context) string
}

var _ adminv1.AdminServiceServer = (*Server)(nil)

// New makes a server over what is durable and what this process knows of the messages that it owns, as
// [spool.Spool.Live] tells. live may be nil where no spool runs in this process.
func New(reader spool.Reader, live func(spool.ID) (spool.Live, bool), opts Options) *Server {
	if live == nil {
		live = func(spool.ID) (spool.Live, bool) { return spool.Live{}, false }
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = 3 * time.Second
	}
	if opts.Caller == nil {
		opts.Caller = func(context.Context) string { return "" }
	}
	return &Server{
		reader: reader, live: live, log: opts.Logger, heartbeat: opts.Heartbeat, commander: opts.Commander,
		suspender: opts.Suspender, caller: opts.Caller,
	}
}

// GetMessage shows one message with its journal.
func (s *Server) GetMessage(ctx context.Context, req *adminv1.GetMessageRequest) (*adminv1.GetMessageResponse, error) {
	id, err := parseID(req.GetId())
	if err != nil {
		return nil, err
	}
	msg, err := s.message(ctx, id)
	if err == nil {
		err = s.tellSuspended(ctx, msg)
	}
	if err != nil {
		return nil, s.status(ctx, err)
	}
	return &adminv1.GetMessageResponse{Message: msg}, nil
}

// message reads a message. What is live is asked first: what becomes durable in between is then seen twice and not
// missed.
func (s *Server) message(ctx context.Context, id spool.ID) (*adminv1.Message, error) {
	live, owned := s.live(id)
	rec, err := s.reader.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading message %s: %w", id, err)
	}
	if !owned {
		return message(rec, nil), nil
	}
	return message(rec, &live), nil
}

// status tells the caller what kind of failure it was. An inner cause is logged and not told.
func (s *Server) status(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return status.Error(codes.NotFound, "there is no such message")
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, spool.ErrUnavailable):
		return status.Error(codes.Unavailable, "the database is not available")
	}
	s.log.ErrorContext(ctx, "administrative call failed", slog.Any("error", err))
	return status.Error(codes.Internal, "the database could not be read, see the spool's log")
}

func parseID(text string) (spool.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return uuid.Nil, status.Errorf(codes.InvalidArgument, "id %q is not a UUID", text)
	}
	return id, nil
}

// trimBrackets takes the angle brackets off a Message-ID.
func trimBrackets(headerID string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(headerID), "<"), ">")
}
