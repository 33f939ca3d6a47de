package spooladmin

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/spool"
)

// fakeSuspender holds suspensions in the order in which they were made, and has room for two.
type fakeSuspender struct{ list []spool.Suspension }

func (f *fakeSuspender) Suspend(_ context.Context, want spool.Suspension, length time.Duration) (spool.Suspension, error) {
	if len(f.list) == 2 {
		return want, spool.ErrFull
	}
	want.Since = noon
	if length > 0 {
		want.Until = noon.Add(length)
	}
	f.list = append(f.list, want)
	return want, nil
}

func (f *fakeSuspender) Resume(_ context.Context, p pattern.Pattern) error {
	before := len(f.list)
	f.list = slices.DeleteFunc(f.list, func(s spool.Suspension) bool { return s.Pattern == p })
	if len(f.list) == before {
		return spool.ErrNotFound
	}
	return nil
}

func (f *fakeSuspender) Suspensions(context.Context) ([]spool.Suspension, error) { return f.list, nil }

func (f *fakeSuspender) Queues(_ context.Context, limit int) ([]spool.Queue, error) {
	queues := []spool.Queue{{Destination: "a.t", Messages: 3, NextAt: noon}, {Destination: "b.t", Messages: 1, LastReply: "451 - later"}}
	return queues[:min(limit, len(queues))], nil
}

func suspending(reader spool.Reader) *Server {
	return New(reader, nil, Options{
		Logger: slog.New(slog.DiscardHandler), Suspender: &fakeSuspender{}, Caller: func(context.Context) string { return "ann" },
	})
}

func TestDestinations(t *testing.T) {
	s, ctx := suspending(newFakeReader()), testContext(t)
	got, err := s.SuspendDestination(ctx, &adminv1.SuspendDestinationRequest{
		Pattern: "*.t", Length: durationpb.New(time.Hour), Reason: "a move",
	})
	if sus := got.GetSuspension(); err != nil || sus.GetPattern() != "*.t" || sus.GetBy() != "ann" || sus.GetReason() != "a move" ||
		!sus.GetUntil().AsTime().Equal(noon.Add(time.Hour)) {
		t.Fatalf("got %v, %v", got, err)
	}
	if got, err = s.SuspendDestination(ctx, &adminv1.SuspendDestinationRequest{Pattern: "b.t"}); err != nil || got.GetSuspension().GetUntil() != nil {
		t.Errorf("without length: %v, %v", got, err)
	}
	list, err := s.ListDestinations(ctx, &adminv1.ListDestinationsRequest{})
	if err != nil || len(list.GetSuspensions()) != 2 || len(list.GetQueues()) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	for i, want := range []string{"*.t", "b.t"} { // of b.t both are: one ends, the other does not
		if sus := list.GetQueues()[i].GetSuspension(); sus.GetPattern() != want {
			t.Errorf("%s is suspended by %v, want %s", list.GetQueues()[i].GetDestination(), sus, want)
		}
	}
	for _, test := range []struct {
		name string
		call func() error
		want codes.Code
		text string
	}{
		{"too many", suspend(s, "c.t", nil), codes.ResourceExhausted, "100"},
		{"an address", suspend(s, "ann@c.t", nil), codes.InvalidArgument, "c.t"},
		{"no pattern", suspend(s, "a.*.t", nil), codes.InvalidArgument, "a.*.t"},
		{"a long pattern", suspend(s, strings.Repeat("a", 256), nil), codes.InvalidArgument, "255"},
		{"no length", suspend(s, "c.t", durationpb.New(0)), codes.InvalidArgument, "more than 0"},
		{"not suspended", func() error {
			_, err := s.ResumeDestination(ctx, &adminv1.ResumeDestinationRequest{Pattern: "a.t"})
			return err
		}, codes.NotFound, "a.t"},
		{"a large list", func() error {
			_, err := s.ListDestinations(ctx, &adminv1.ListDestinationsRequest{Limit: 1001})
			return err
		}, codes.InvalidArgument, "1001"},
	} {
		if err := test.call(); status.Code(err) != test.want || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %s and %q", test.name, err, test.want, test.text)
		}
	}
	if _, err := s.ResumeDestination(ctx, &adminv1.ResumeDestinationRequest{Pattern: "*.t"}); err != nil {
		t.Error(err)
	}
	if list, err := s.ListDestinations(ctx, &adminv1.ListDestinationsRequest{Limit: 1}); err != nil ||
		len(list.GetSuspensions()) != 1 || len(list.GetQueues()) != 1 || list.GetQueues()[0].GetSuspension() != nil {
		t.Errorf("after it was resumed: %v, %v", list, err)
	}
}

func suspend(s *Server, pattern string, length *durationpb.Duration) func() error {
	return func() error {
		_, err := s.SuspendDestination(context.Background(), &adminv1.SuspendDestinationRequest{Pattern: pattern, Length: length})
		return err
	}
}

// Of a recipient that waits is told that its destination is suspended; of one that has ended or is held it is not.
func TestSuspensionIsTold(t *testing.T) {
	rec := record()
	rec.Waits = []spool.Wait{{Reason: spool.WaitRetry, Recipients: []int32{0}, NextAt: noon}}
	rec.Attempts = []spool.Attempt{{Ended: []spool.RecipientEnd{{Recipient: 1, State: delivered}}}}
	s := suspending(newFakeReader(rec))
	if err := suspend(s, "T", nil)(); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetMessage(testContext(t), &adminv1.GetMessageRequest{Id: testID.String()})
	if err != nil {
		t.Fatal(err)
	}
	list := got.GetMessage().GetSummary().GetRecipients()
	if list[0].GetSuspension().GetPattern() != "T" || list[1].GetSuspension() != nil {
		t.Errorf("recipients %v", list)
	}
	waited, err := s.WaitMessage(testContext(t), &adminv1.WaitMessageRequest{By: &adminv1.WaitMessageRequest_Id{Id: testID.String()}})
	if err != nil || waited.GetMessage().GetSummary().GetRecipients()[0].GetSuspension() == nil {
		t.Errorf("waited for %v, %v", waited, err)
	}
}
