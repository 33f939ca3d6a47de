package deliver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
)

// A connection carries one message after the other, up to its limit, and one that the peer has ended costs nothing.
func TestReuse(t *testing.T) {
	replyTo := func(step string, n int, a smtpsink.Action) smtpsink.Script {
		seen := 0
		return func(s, _ string) *smtpsink.Action {
			if s != step {
				return nil
			}
			if seen++; seen == n {
				return &a
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		change func(*deliver.Config)
		script smtpsink.Script
		want   string // how three messages go
		conns  int
		over   bool // each connection ends before the next message
	}{
		"kept":                      {nil, nil, "ddd", 1, false},
		"never kept":                {func(c *deliver.Config) { c.ReuseIdle = 0 }, nil, "ddd", 3, true},
		"two messages each":         {func(c *deliver.Config) { c.ReuseMessages = 2 }, nil, "ddd", 2, false},
		"idle for too long":         {func(c *deliver.Config) { c.ReuseIdle = time.Microsecond }, nil, "ddd", 3, true},
		"ended after a message":     {nil, replyTo("dot", 1, smtpsink.Action{Reply: "250 ok", Then: smtpsink.Close}), "ddd", 2, false},
		"ended by 421":              {nil, replyTo("MAIL", 2, smtpsink.Action{Reply: "421 enough", Then: smtpsink.Close}), "ddd", 2, false},
		"reset at the next message": {nil, replyTo("MAIL", 2, smtpsink.Action{Then: smtpsink.Reset}), "ddd", 2, false},
		"refused at the dot":        {nil, replyTo("dot", 2, smtpsink.Action{Reply: "550 5.7.1 no"}), "dpd", 1, false},
		"421 at the dot":            {nil, replyTo("dot", 2, smtpsink.Action{Reply: "421 no", Then: smtpsink.Close}), "dtd", 2, false},
		"sender refused":            {nil, replyTo("MAIL", 2, smtpsink.Action{Reply: "550 5.7.1 no"}), "dpd", 2, false},
		"answers twice":             {nil, replyTo("dot", 1, smtpsink.Action{Reply: "250 ok\r\n550 5.7.1 no"}), "ddd", 2, false},
		"421 at once":               {nil, replyTo("MAIL", 1, smtpsink.Action{Reply: "421 no", Then: smtpsink.Close}), "tdd", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			sink := smtpsink.Start(t, nil, c.script)
			d := newDeliverer(t, func(cfg *deliver.Config) {
				cfg.ReuseIdle = time.Minute
				if c.change != nil {
					c.change(cfg)
				}
			}, toSMTP(sink.Addr, "*"))
			for _, want := range c.want {
				a, _ := attempt(t, d, newTask(simple, &permits{}, "ann@to.test"))
				wantStatus(t, a, string(want))
				if len(a.GetRemote()) == 0 {
					t.Error("no remote")
				}
				if c.over {
					sink.Wait()
				}
			}
			if n := sink.Conns(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			sink.Wait()
			if lines := sink.Lines(); c.conns == 1 && lines[len(lines)-1] != "QUIT" || slices.Contains(lines, "RSET") {
				t.Errorf("said %q", lines)
			}
		})
	}
}
