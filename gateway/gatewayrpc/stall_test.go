package gatewayrpc_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// hang reads nothing more of a stream once it has got content.
func hang(s *serverStream, _ *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

// A spool that stops reading in the middle of a large message holds its client for SendTimeout, not for the hour that the
// message may take.
func TestLargeMessageToSpoolThatHangs(t *testing.T) {
	c := client(t, gatewayrpc.Options{SendTimeout: 500 * time.Millisecond}, serve(t, &fakeSpool{on: hang}))
	done := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), large(&failing{left: 1 << 40, err: io.EOF}))
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "takes nothing") {
			t.Errorf("Submit: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Submit hangs with the spool")
	}
}

// Small messages that a spool does not answer, or does not even read, go to another one.
func TestSmallMessagesLeaveSpoolThatHangs(t *testing.T) {
	hanging, good := &fakeSpool{on: hang}, &fakeSpool{on: acceptAll}
	c := client(t, gatewayrpc.Options{SendTimeout: 500 * time.Millisecond}, serve(t, hanging), serve(t, good))
	done := make(chan error, 64)
	for range cap(done) { // more than the windows of a connection hold, if all were sent
		go func() {
			_, err := c.Submit(t.Context(), small(strings.Repeat("x", 60_000)))
			done <- err
		}()
	}
	for range cap(done) {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Submit: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a message hangs with the spool")
		}
	}
}
