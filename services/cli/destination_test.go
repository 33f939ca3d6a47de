package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// suspendedAt is when everything is suspended in these tests.
var suspendedAt = time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC)

func (f *fakeAdmin) SuspendDestination(
	_ context.Context, request *adminv1.SuspendDestinationRequest,
) (*adminv1.SuspendDestinationResponse, error) {
	if strings.Contains(request.GetPattern(), "@") {
		return nil, status.Error(codes.InvalidArgument, "it names an address")
	}
	s := &adminv1.Suspension{Pattern: request.GetPattern(), Reason: request.GetReason(), By: "cli", Since: timestamppb.New(suspendedAt)}
	if request.GetLength() != nil {
		s.Until = timestamppb.New(suspendedAt.Add(request.GetLength().AsDuration()))
	}
	f.suspensions = append(f.suspensions, s)
	return &adminv1.SuspendDestinationResponse{Suspension: s}, nil
}

func (f *fakeAdmin) ResumeDestination(
	_ context.Context, request *adminv1.ResumeDestinationRequest,
) (*adminv1.ResumeDestinationResponse, error) {
	for _, s := range f.suspensions {
		if s.GetPattern() == request.GetPattern() {
			f.suspensions = nil
			return &adminv1.ResumeDestinationResponse{}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no")
}

func (f *fakeAdmin) ListDestinations(
	_ context.Context, request *adminv1.ListDestinationsRequest,
) (*adminv1.ListDestinationsResponse, error) {
	response := &adminv1.ListDestinationsResponse{Suspensions: f.suspensions}
	if request.GetLimit() == 2 {
		response.Queues = []*adminv1.DestinationQueue{
			{
				Destination: "one.test", Messages: 1200, Due: 1100, WaitingSince: timestamppb.New(suspendedAt),
				NextAt: timestamppb.New(suspendedAt), Suspension: f.suspensions[0],
			},
			{Destination: "two.test", Messages: 7, LastReply: "451 4.3.0 \x1b[31mlater", NextAt: timestamppb.New(suspendedAt)},
		}
	}
	return response, nil
}

func TestDestinations(t *testing.T) {
	flags := startAdmin(t, &fakeAdmin{}, nil)
	call := func(args ...string) string {
		t.Helper()
		out, err := run(t, "", append(append([]string{"destination"}, args...), flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, step := range []struct{ args, want string }{
		{"list", "Nothing is suspended.\n\nNothing waits.\n"},
		{"suspend one.test --for 1d2h --reason move", "one.test is suspended until 2026-12-01 13:00:00 UTC.\n"},
		{"suspend *.two.test", "*.two.test is suspended until it is resumed.\n"},
		{"list --limit 2", `Suspended (UTC)
  one.test    until 2026-12-01 13:00:00 UTC  since 2026-11-30 11:00:00  by cli move
  *.two.test  until it is resumed            since 2026-11-30 11:00:00  by cli

Waiting (UTC)
  DESTINATION  MESSAGES  DUE   NEXT                 WAITING SINCE        LAST REPLY
  one.test     1200      1100  suspended            2026-11-30 11:00:00  
  two.test     7         0     2026-11-30 11:00:00  -                    451 4.3.0 ` + "\ufffd" + `[31mlater
`},
		{"resume one.test", "one.test is resumed.\n"},
	} {
		if diff := cmp.Diff(step.want, call(strings.Fields(step.args)...)); diff != "" {
			t.Errorf("%s: %s", step.args, diff)
		}
	}
	if out := call("list", "--json"); !strings.HasPrefix(out, "{") {
		t.Errorf("JSON: %s", out)
	}
	for args, code := range map[string]int{
		"resume one.test": 1, "suspend one.test --for soon": 2, "suspend one.test --for 0": 2, "suspend a@one.test": 2, "list --limit 0": 2,
	} {
		_, err := run(t, "", append(append([]string{"destination"}, strings.Fields(args)...), flags...)...)
		if process.ExitCode(err) != code {
			t.Errorf("%s: %v, want exit code %d", args, err, code)
		}
	}
}

// A message that waits says why.
func TestSuspendedMessageShow(t *testing.T) {
	m := testMessage()
	m.GetSummary().GetRecipients()[0] = &adminv1.RecipientStatus{
		Address: "a@one.test", State: mailv1.RecipientState_RECIPIENT_STATE_DEFERRED, NextAt: timestamppb.New(suspendedAt),
		Suspension: &adminv1.Suspension{Pattern: "one.test", Until: timestamppb.New(suspendedAt.Add(time.Hour)), Reason: "a move"},
	}
	flags := startAdmin(t, &fakeAdmin{message: m}, nil)
	out, err := run(t, "", append([]string{"message", "show", testID}, flags...)...)
	if want := "a@one.test  deferred  its destination is suspended until 2026-11-30 12:00:00 UTC: a move\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v %s", err, out)
	}
}
