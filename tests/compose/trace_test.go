//go:build compose

package compose

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

// span is a span as Jaeger's API tells it.
type span struct {
	SpanID        string
	OperationName string
	ProcessID     string
	StartTime     int64 // µs since 1970
	Duration      int64 // µs
	References    []struct{ RefType, TraceID, SpanID string }
}

func (s *span) start() time.Time { return time.UnixMicro(s.StartTime) }
func (s *span) end() time.Time   { return time.UnixMicro(s.StartTime + s.Duration) }

// jaegerTrace is a trace as Jaeger's API tells it.
type jaegerTrace struct {
	Spans     []span
	Processes map[string]struct{ ServiceName string }
}

// parent is the id of the span above, empty for a root.
func (s *span) parent() string {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" {
			return r.SpanID
		}
	}
	return ""
}

// askJaeger waits until a trace has spans of all five services and no more are coming.
func askJaeger(t *testing.T, traceID string) *jaegerTrace {
	t.Helper()
	var found *jaegerTrace
	address := "http://" + pipeline.address("jaeger") + "/api/traces/" + traceID
	eventually(t, "asking Jaeger for "+traceID, func() error {
		var answer struct{ Data []jaegerTrace }
		if err := get(address, &answer); err != nil {
			return err
		}
		if len(answer.Data) != 1 {
			return errNotYet
		}
		last := found
		found = &answer.Data[0]
		var services []string
		for _, p := range found.Processes {
			services = append(services, p.ServiceName)
		}
		for _, want := range []string{"gateway", "spool", "parser", "filter", "deliver"} {
			if !slices.Contains(services, want) {
				return fmt.Errorf("no span of %s among %v", want, services)
			}
		}
		// Each service exports in its own time; this span is the last to end.
		if !slices.ContainsFunc(found.Spans, func(s span) bool { return s.OperationName == "spool.outcome" }) {
			return errors.New("no spool.outcome")
		}
		if last == nil || len(last.Spans) != len(found.Spans) || len(orphans(found)) > 0 {
			return fmt.Errorf("%d spans, orphans %v", len(found.Spans), orphans(found))
		}
		return nil
	})
	return found
}

// orphans names the spans whose parent is not there.
func orphans(trace *jaegerTrace) []string {
	var names []string
	for _, s := range trace.Spans {
		if p := s.parent(); p != "" && !slices.ContainsFunc(trace.Spans, func(o span) bool { return o.SpanID == p }) {
			names = append(names, s.OperationName)
		}
	}
	return names
}

// The trace of a mail is one tree with spans of all five services, and it agrees with the journal.
func TestTraceIsOneTree(t *testing.T) {
	before := time.Now()
	id := mustSend(t, "traced")
	message := wait(t, adminv1.NewAdminServiceClient(pipeline.dial(t, "cli")), id, adminv1.MessageState_MESSAGE_STATE_ENDED)
	trace := askJaeger(t, message.GetSummary().GetTraceId())

	var roots []string
	for _, s := range trace.Spans {
		if s.parent() == "" {
			roots = append(roots, s.OperationName)
		}
		if s.start().Before(before) || s.end().After(time.Now()) {
			t.Errorf("%s lasts from %s to %s, outside of the test", s.OperationName, s.start(), s.end())
		}
	}
	if len(roots) != 1 {
		t.Errorf("roots %v, want one", roots)
	}
	// The clocks are one, but a busy machine stops between two looks at it.
	first, last := trace.Spans[0].start(), trace.Spans[0].end()
	for _, s := range trace.Spans {
		if s.start().Before(first) {
			first = s.start()
		}
		if s.end().After(last) {
			last = s.end()
		}
	}
	const slack = 500 * time.Millisecond
	for _, e := range message.GetJournal() {
		if at := e.GetTime().AsTime(); at.Before(first.Add(-slack)) || at.After(last.Add(slack)) {
			t.Errorf("the journal says %s at %s, the trace lasts from %s to %s", e.GetEvent(), at, first, last)
		}
		if e.GetTraceId() != "" && e.GetTraceId() != message.GetSummary().GetTraceId() {
			t.Errorf("the journal's %s is in trace %s", e.GetEvent(), e.GetTraceId())
		}
	}
}
