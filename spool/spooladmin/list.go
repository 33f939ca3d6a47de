package spooladmin

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/spool"
)

const (
	defaultPage = 50
	maxPage     = 1000
	// maxScan is how many messages one call looks at in search of a state. After that the page is as short as it is,
	// and its token goes on from there.
	maxScan = 5000
)

// ListMessages lists messages, newest first.
func (s *Server) ListMessages(
	ctx context.Context, req *adminv1.ListMessagesRequest,
) (*adminv1.ListMessagesResponse, error) {
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultPage
	}
	if size < 1 || size > maxPage {
		return nil, status.Errorf(codes.InvalidArgument, "page_size %d, want 1 to %d", size, maxPage)
	}
	if !knownState(req.GetState()) {
		return nil, status.Errorf(codes.InvalidArgument, "state %d is not known", req.GetState())
	}
	before, err := parsePageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &adminv1.ListMessagesResponse{}
	for scanned := 0; ; {
		// One more than fits tells whether there is a next page.
		recs, err := s.reader.List(ctx, before, size+1)
		if err != nil {
			return nil, s.status(ctx, fmt.Errorf("listing messages: %w", err))
		}
		more := len(recs) > size
		for _, rec := range recs[:min(size, len(recs))] {
			if len(resp.GetMessages()) == size {
				more = true
				break
			}
			before = rec.ID
			if sum := s.summary(rec); req.GetState() == 0 || sum.GetState() == req.GetState() {
				resp.Messages = append(resp.Messages, sum)
			}
		}
		scanned += len(recs)
		if !more {
			return resp, nil
		}
		if len(resp.GetMessages()) == size || scanned >= maxScan {
			resp.NextPageToken = pageToken(before)
			return resp, nil
		}
	}
}

func (s *Server) summary(rec *spool.Record) *adminv1.MessageSummary {
	if rec.Outcome == nil {
		if live, owned := s.live(rec.ID); owned {
			return summary(rec, &live)
		}
	}
	return summary(rec, nil)
}

func knownState(state adminv1.MessageState) bool {
	_, known := adminv1.MessageState_name[int32(state)]
	return known
}

// A page token is the id of the last message that was looked at.
func pageToken(id spool.ID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parsePageToken(token string) (spool.ID, error) {
	if token == "" {
		return uuid.Max, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		var id spool.ID
		if id, err = uuid.FromBytes(raw); err == nil {
			return id, nil
		}
	}
	return uuid.Nil, status.Error(codes.InvalidArgument, "page_token is not one that a list gave")
}
