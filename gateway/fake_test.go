package gateway_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/gateway"
)

// fakeSpool keeps what was submitted. Its zero value accepts everything.
type fakeSpool struct {
	mu       sync.Mutex
	messages []stored
	started  int // submissions
	withdraw int // submissions whose content failed
	now      time.Time
	// answer decides about a message whose content has been read; nil accepts.
	answer func(ctx context.Context, sub *gateway.Submission) error
	pause  time.Duration // before a stream is read
	begun  chan struct{} // sent to when a submission begins, if set
}

type stored struct {
	sub     *gateway.Submission
	content string
	span    trace.SpanContext
}

func (s *fakeSpool) Now() time.Time {
	if s.now.IsZero() {
		return time.Now()
	}
	return s.now
}

func (s *fakeSpool) Submit(ctx context.Context, sub *gateway.Submission) (gateway.Receipt, error) {
	if s.begun != nil {
		s.begun <- struct{}{}
	}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	content := sub.Content
	if sub.Stream != nil {
		time.Sleep(s.pause)
		var err error
		if content, err = io.ReadAll(sub.Stream); err != nil {
			s.mu.Lock()
			s.withdraw++
			s.mu.Unlock()
			return gateway.Receipt{}, err
		}
	}
	if s.answer != nil {
		if err := s.answer(ctx, sub); err != nil {
			return gateway.Receipt{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, stored{sub: sub, content: string(content), span: trace.SpanContextFromContext(ctx)})
	return gateway.Receipt{}, nil
}

// waitStarted waits until some submissions have begun.
func (s *fakeSpool) waitStarted(t *testing.T, want int) {
	t.Helper()
	waitFor(t, "submissions", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.started >= want
	})
}

func (s *fakeSpool) all() []stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]stored(nil), s.messages...)
}

// String shows the content.
func (s stored) String() string { return fmt.Sprintf("%.80q", s.content) }
