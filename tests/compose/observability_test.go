//go:build compose

package compose

import (
	"fmt"
	"testing"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

// With the profile `observability` the trace of a mail whose delivery failed is kept, those of mails that went well only in
// part.
func TestTailSamplingKeepsFailures(t *testing.T) {
	pipeline.tellLogs(t, "collector", "jaeger", "deliver")
	restore := pipeline.with("COMPOSE_PROFILES=observability", "TRACES_TO=collector", "DECISION_WAIT=30s")
	t.Cleanup(func() {
		pipeline.do(t, "rm", "--stop", "--force", "collector")
		restore()
		pipeline.do(t, "up", "-d", "--wait")
	})
	pipeline.do(t, "up", "-d", "--wait")
	admin := adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))

	var good []string
	for i := range 20 {
		id := mustSend(t, fmt.Sprintf("sampled-%d", i))
		good = append(good, wait(t, admin, id, adminv1.MessageState_MESSAGE_STATE_ENDED).GetSummary().GetTraceId())
	}
	pipeline.do(t, "stop", "mailpit")
	failing := wait(t, admin, mustSend(t, "sampled-failing"), adminv1.MessageState_MESSAGE_STATE_DEFERRED)
	pipeline.do(t, "start", "mailpit")

	eventually(t, "the trace of the failure is in Jaeger", func() error { return kept(failing.GetSummary().GetTraceId()) })
	n := 0
	for _, id := range good {
		if kept(id) == nil {
			n++
		}
	}
	t.Logf("%d of %d traces without failure were kept", n, len(good))
	// That a twentieth of them be all has the probability 1e-26.
	if n == len(good) {
		t.Error("every trace was kept")
	}
}

// kept tells by its error whether Jaeger has a trace.
func kept(traceID string) error {
	var answer struct{ Data []jaegerTrace }
	if err := get("http://"+pipeline.address("jaeger")+"/api/traces/"+traceID, &answer); err != nil {
		return err
	}
	if len(answer.Data) == 0 {
		return errNotYet
	}
	return nil
}
