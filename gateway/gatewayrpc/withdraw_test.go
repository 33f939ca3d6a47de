package gatewayrpc

import (
	"context"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// An answer that is on its way when the client's time ends counts: else a message would be accepted and its client told
// 451, and send it again (promise P3).
func TestAnswerInTheMomentOfWithdrawal(t *testing.T) {
	c := &Client{wake: make(chan struct{}, 1), calls: map[string]*call{}}
	// As resolve leaves it between taking the call out and giving the answer.
	one := &call{begin: &spoolv1.SubmitBegin{Id: "one"}, answer: make(chan answer, 1), sent: true}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	type outcome struct {
		receipt gateway.Receipt
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		receipt, err := c.withdraw(ctx, one)
		done <- outcome{receipt, err}
	}()
	select {
	case got := <-done:
		t.Fatalf("did not wait for the answer: %v", got)
	case <-time.After(50 * time.Millisecond):
	}
	one.answer <- answer{receipt: gateway.Receipt{SuspectedDuplicateOf: "x"}}
	if got := <-done; got.err != nil || got.receipt.SuspectedDuplicateOf != "x" {
		t.Errorf("got %v", got)
	}
	// A message that still waits is taken back.
	c.calls["one"] = one
	if _, err := c.withdraw(ctx, one); err == nil || len(c.calls) != 0 {
		t.Errorf("%v, %d calls", err, len(c.calls))
	}
}
