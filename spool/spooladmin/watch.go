package spooladmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/spool"
)

const (
	// maxCursor is the longest cursor, in octets.
	maxCursor = 128
	// maxEvents is how many events are read at once.
	maxEvents = 500
)

// WatchEvents follows what happens to all messages. The first response comes at once: an event or a heartbeat. A
// heartbeat's cursor is as good as that of an event.
func (s *Server) WatchEvents(req *adminv1.WatchEventsRequest, stream adminv1.AdminService_WatchEventsServer) error {
	ctx := stream.Context()
	cursor := req.GetCursor()
	if len(cursor) > maxCursor {
		return errBadCursor
	}
	var lastSent time.Time
	for pause := pollMin; ; pause = min(pause*3/2, pollMax) {
		events, next, err := s.reader.Events(ctx, cursor, maxEvents)
		if err != nil {
			return s.eventsError(ctx, err)
		}
		if err := sendEvents(stream, cursor, events); err != nil {
			return err
		}
		cursor = next
		switch {
		case len(events) > 0:
			lastSent, pause = time.Now(), pollMin
		case time.Since(lastSent) >= s.heartbeat:
			if err := stream.Send(&adminv1.WatchEventsResponse{Cursor: cursor}); err != nil {
				return err
			}
			lastSent = time.Now()
		}
		if len(events) == maxEvents {
			continue // there is more
		}
		if !sleep(ctx, min(pause, s.heartbeat)) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

var errBadCursor = status.Error(codes.InvalidArgument, "cursor is not one that a watch gave")

func (s *Server) eventsError(ctx context.Context, err error) error {
	if errors.Is(err, spool.ErrBadCursor) {
		return errBadCursor
	}
	return s.status(ctx, fmt.Errorf("reading events: %w", err))
}

// sendEvents sends one response for each journal entry of each row. Only the last of a row carries the row's cursor: who
// stops in the middle of a row gets all of it again.
func sendEvents(stream adminv1.AdminService_WatchEventsServer, cursor string, events []spool.StoredEvent) error {
	for _, event := range events {
		entries := event.Journal
		if event.Ended && len(entries) > 1 {
			entries = entries[len(entries)-1:]
		}
		for i := range max(1, len(entries)) {
			msg := &adminv1.Event{MessageId: event.Message.String(), Ended: event.Ended}
			if i < len(entries) {
				msg.Entry = entries[i]
			}
			if i >= len(entries)-1 {
				cursor = event.Cursor
			}
			if err := stream.Send(&adminv1.WatchEventsResponse{Cursor: cursor, Event: msg}); err != nil {
				return err
			}
		}
	}
	return nil
}
