package smtpreply_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Case A1: an internal failure is never a permanent refusal and never leaks its cause.
func TestFromInternalErrors(t *testing.T) {
	for name, err := range map[string]error{
		"plain":          errors.New("pq: password of admin is secret"),
		"wrapped":        fmt.Errorf("storing: %w", errors.New("secret")),
		"deadline":       fmt.Errorf("submit: %w", context.DeadlineExceeded),
		"grpc permanent": status.Error(codes.InvalidArgument, "secret"),
		"bad reply":      smtpreply.FromReply(&mailv1.Reply{Code: 250, Text: "secret"}),
	} {
		t.Run(name, func(t *testing.T) {
			got := smtpreply.From(err)
			if !got.Temporary() || strings.Contains(got.Reply().GetText(), "secret") {
				t.Errorf("From(%v) = %v, want a temporary reply without the cause", err, got.Reply())
			}
			if !errors.Is(got, err) {
				t.Errorf("cause is lost: %v", got)
			}
		})
	}
}

// A fault of one message is as temporary, but does not say that the system ails. What is a reply already stays as it is.
func TestOfMessage(t *testing.T) {
	inner := errors.New("secret")
	got := smtpreply.OfMessage(inner)
	if got.Reply().GetEnhancedCode() != "4.6.0" || !got.Temporary() || !errors.Is(got, inner) || strings.Contains(got.Reply().GetText(), "secret") {
		t.Errorf("of an inner error: %v", got)
	}
	full := smtpreply.New(452, "4.3.1", "No room")
	if got := smtpreply.OfMessage(fmt.Errorf("storing: %w", full)); got != full {
		t.Errorf("of a reply: %v", got)
	}
	if smtpreply.OfMessage(nil) != nil {
		t.Error("of nothing there is a reply")
	}
}

func TestReplyCrossesTheWire(t *testing.T) {
	sent := smtpreply.New(552, "5.3.4", "Message too big").Because(errors.New("inner"))
	st := sent.GRPCStatus()
	got := smtpreply.From(fmt.Errorf("submit: %w", status.FromProto(st.Proto()).Err()))
	if got.Temporary() || got.Reply().GetCode() != 552 || got.Reply().GetEnhancedCode() != "5.3.4" {
		t.Errorf("got %v", got.Reply())
	}
	if strings.Contains(st.String(), "inner") {
		t.Errorf("status leaks the cause: %v", st)
	}
}

func TestNewRefusesContradiction(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New(550, 4.x) did not panic")
		}
	}()
	_ = smtpreply.New(550, "4.1.1", "no")
}
