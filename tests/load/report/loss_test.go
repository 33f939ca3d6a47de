package report

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A mail whose reply was lost and that arrived does not stand for one that was accepted and did not, nor for one that is
// still to come.
func TestAwait(t *testing.T) {
	script, err := sink.NewScript(sink.Rule{At: sink.Dot, Recipient: "user1@*", Then: sink.Reset})
	if err != nil {
		t.Fatal(err)
	}
	s, err := sink.Start(t.Context(), sink.Config{Script: script})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is under way
	res, err := gen.Run(t.Context(), gen.Config{Target: s.SMTP(), Messages: 4, Users: 4})
	if err != nil || res.Accepted != 3 || res.Unknown != 1 || len(res.Doubtful) != 1 {
		t.Fatalf("%v %+v", err, res)
	}
	hidden, err := Await(t.Context(), s, res, 0)
	if err != nil || hidden == nil || *hidden != 1 {
		t.Fatalf("%v %v", hidden, err)
	}
	res.Recipients++ // one that was accepted and did not arrive: with the other the count is right
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	hidden, err = Await(ctx, s, res, 0)
	stats := s.Stats()
	run := Run{Gens: []*gen.Result{res}, Sinks: []*sink.Stats{&stats}, Hidden: hidden}
	if missing, _, _ := Lost(&run); err == nil || missing != 1 || Unproven(&run) != 0 {
		t.Errorf("%d are missing, %d unproven, %v", missing, Unproven(&run), err)
	}
	res.Doubts = 20_000 // more than are named
	if hidden, _ := Await(ctx, s, res, 0); hidden != nil {
		t.Errorf("of more than are named %d arrived", *hidden)
	}
}
