package gen

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startSink(t *testing.T, cfg sink.Config, rules ...sink.Rule) *sink.Sink {
	t.Helper()
	script, err := sink.NewScript(rules...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Script = script
	s, err := sink.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func run1(t *testing.T, cfg Config) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Every way to send arrives whole, at 200 sessions and with several messages in each.
func TestAgainstSink(t *testing.T) {
	odd := mail.Wrap([]byte("From: a@b\nSubject: dots\n\n.\n..\n.dot\nb\xf6dy\n\n.\n"))
	for _, c := range []struct {
		name string
		sink sink.Config
		gen  Config
	}{
		{"plain", sink.Config{}, Config{Sessions: 200, PerSession: 5, Messages: 2000}},
		{"kept sessions", sink.Config{}, Config{Sessions: 200, Messages: 2000}},
		{"pipelined", sink.Config{}, Config{Sessions: 50, PerSession: 5, Messages: 500, Pipelining: true, Recipients: 3}},
		{"chunked", sink.Config{}, Config{Sessions: 50, PerSession: 5, Messages: 500, Chunk: 1000}},
		{"chunked and pipelined", sink.Config{}, Config{Sessions: 10, Messages: 100, Chunk: 1 << 20, Pipelining: true}},
		{"STARTTLS", sink.Config{StartTLS: true}, Config{Sessions: 20, PerSession: 2, Messages: 100, TLS: StartTLS}},
		{"implicit TLS", sink.Config{ImplicitTLS: true}, Config{Sessions: 20, PerSession: 2, Messages: 100, TLS: Implicit}},
		{"AUTH", sink.Config{}, Config{Sessions: 5, Messages: 50, Username: "ann", Password: "secret"}},
		{"LMTP", sink.Config{LMTP: "127.0.0.1:0"}, Config{Sessions: 5, Messages: 50, LMTP: true, Recipients: 2}},
		{"sizes and dots", sink.Config{}, Config{
			Sessions: 10, Messages: 100, Mails: []*mail.Mail{mail.Sized(0), odd, mail.Sized(300 << 10)},
		}},
		{"chunked STARTTLS", sink.Config{StartTLS: true}, Config{Sessions: 5, PerSession: 2, Messages: 20, TLS: StartTLS, Chunk: 40 << 10, Mails: []*mail.Mail{mail.Sized(100 << 10)}}},
		{"several sources", sink.Config{}, Config{Sessions: 50, PerSession: 1, Messages: 200, Sources: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startSink(t, c.sink)
			c.gen.Target = s.SMTP()
			if c.gen.LMTP {
				c.gen.Target = s.LMTP()
			}
			res := run1(t, c.gen)
			if res.Accepted != c.gen.Messages || len(res.Errors) > 0 {
				t.Errorf("accepted %d of %d, errors %v", res.Accepted, c.gen.Messages, res.Errors)
			}
			want := c.gen.Messages * int64(max(1, c.gen.Recipients))
			if st := s.Stats(); st.Distinct != want || st.Duplicates != 0 || len(st.Faults) > 0 || st.Strange != 0 {
				t.Errorf("the sink says %+v, want %d distinct", st, want)
			}
			if res.Message.Count != c.gen.Messages || res.Message.Max <= 0 || res.Session.Count != res.Sessions {
				t.Errorf("latencies of %d messages and %d of %d sessions", res.Message.Count, res.Session.Count, res.Sessions)
			}
		})
	}
}

// What the server says is what the ledger has.
func TestLedger(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	s := startSink(t, sink.Config{},
		sink.Rule{At: sink.Rcpt, Recipient: "user1@*", Reply: "450 4.2.1 later"},
		sink.Rule{At: sink.Dot, Recipient: "user2@*", Reply: "554 5.6.0 no"},
		sink.Rule{At: sink.Dot, Recipient: "user3@*", Then: sink.Reset},
		sink.Rule{At: sink.Data, Recipient: "user4@*", Then: sink.Close},
		sink.Rule{At: sink.Dot, Reply: "250 2.0.0 Ok: queued as " + id},
	)
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	res := run1(t, Config{Target: s.SMTP(), Messages: 10, Users: 5, Ledger: l, Run: "r"})
	entries, err := ledger.Read[ledger.Entry](path)
	if err != nil || len(entries) != 10 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	want := []ledger.Outcome{ledger.Accepted, ledger.Refused, ledger.Refused, ledger.Unknown, ledger.Failed}
	for i, e := range entries {
		if e.Outcome != want[i%5] || e.ID == "" || e.Reply == "" || e.Size == 0 || e.End.Before(e.Start) {
			t.Errorf("message %d: %+v, want %s", i, e, want[i%5])
		}
		if (e.MessageID == id) != (e.Outcome == ledger.Accepted) {
			t.Errorf("message %d: id %q", i, e.MessageID)
		}
	}
	if res.Accepted != 2 || res.Refused != 4 || res.Unknown != 2 || res.Failed != 2 || res.Errors["rcpt 450"] != 2 || res.Errors["dot: reset"] != 2 {
		t.Errorf("%+v", res)
	}
}

func TestOpenRate(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Delay: sink.Duration(200 * time.Millisecond)})
	res := run1(t, Config{Target: s.SMTP(), Sessions: 2, Rate: 50, PerSession: 1, Messages: 20})
	// Two at once with 200 ms each can't keep up with 50/s: the last starts 1.6 s late, and that counts.
	if res.Accepted != 20 || res.Message.Max < 1200 {
		t.Errorf("accepted %d, longest %g ms: the wait for a place does not count", res.Accepted, res.Message.Max)
	}
}

func TestWarmUpDoesNotCount(t *testing.T) {
	const slow = 2 * time.Second // of the tenth message alone; no message after it takes that long
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Skip: 9, Times: 1, Delay: sink.Duration(slow)})
	res := run1(t, Config{Target: s.SMTP(), WarmUp: 10, Messages: 90})
	if res.Accepted != 100 || res.Counted != 90 || res.Message.Count != 90 || res.Message.Max > float64(slow.Milliseconds()) {
		t.Errorf("%+v", res)
	}
	if took := res.Warm.Sub(res.First); took < slow || res.Rate() < 90/(res.End.Sub(res.Warm).Seconds()+1e-3) {
		t.Errorf("warm-up %s, rate %g", took, res.Rate())
	}
}

// The time of sending begins after the warm-up, and what is still under way at its end is answered but does not count.
func TestDuration(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Delay: sink.Duration(50 * time.Millisecond)})
	res := run1(t, Config{Target: s.SMTP(), Sessions: 4, WarmFor: 300 * time.Millisecond, Duration: 500 * time.Millisecond})
	if warm, took := res.Warm.Sub(res.First), res.Stop.Sub(res.Warm); warm < 300*time.Millisecond || took < 500*time.Millisecond || took > time.Minute {
		t.Errorf("warm-up %s, then %s", warm, took)
	}
	if res.Accepted != res.Messages || res.Counted >= res.Accepted || res.Counted < 1 || res.Last.Before(res.Stop) {
		t.Errorf("rate %g, %+v", res.Rate(), res)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Then: sink.Silence})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for deadline := time.Now().Add(time.Minute); s.Stats().Arrivals < 3 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	start := time.Now()
	res, err := Run(ctx, Config{Target: s.SMTP(), Sessions: 3, Duration: time.Hour, Grace: 100 * time.Millisecond})
	if err != nil || res.Unknown != 3 || time.Since(start) > 2*time.Minute {
		t.Errorf("%+v, %v after %s", res, err, time.Since(start))
	}
}

func TestServerThatIsDown(t *testing.T) {
	s := startSink(t, sink.Config{})
	target := s.SMTP()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	res := run1(t, Config{Target: target, Sessions: 2, Duration: 2 * time.Second})
	if n := res.Errors["dial: refused"]; n < 2 || n > 20 {
		t.Errorf("%d attempts in two seconds: %v", n, res.Errors)
	}
}

func TestGuard(t *testing.T) {
	for target, ok := range map[string]bool{
		"127.0.0.1:25": true, "localhost:25": true, "10.1.2.3:25": true, "192.168.0.1:25": true, "[::1]:25": true, "[fd00::1]:25": true,
		"192.0.2.1:25": false, "8.8.8.8:25": false, "[2001:db8::1]:25": false, "nonsense": false,
	} {
		if err := guard(t.Context(), target, false); (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
	if err := guard(t.Context(), "192.0.2.1:25", true); err != nil {
		t.Errorf("told explicitly: %v", err)
	}
	_, err := Run(t.Context(), Config{Target: "192.0.2.1:25", Messages: 1})
	if err == nil || !strings.Contains(err.Error(), "private") {
		t.Errorf("Run did not refuse: %v", err)
	}
	if _, err := Run(t.Context(), Config{Target: "127.0.0.1:1"}); err == nil {
		t.Error("a load without end is no error")
	}
}

func TestOutOfRange(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"recipients":     func(c *Config) { c.Recipients = -1 },
		"users":          func(c *Config) { c.Users = -1 },
		"chunk":          func(c *Config) { c.Chunk = -1 },
		"sources":        func(c *Config) { c.Sources = -1 },
		"slow rate":      func(c *Config) { c.SlowRate = -1 },
		"sessions":       func(c *Config) { c.Sessions = -1 },
		"rate":           func(c *Config) { c.Rate = math.NaN() },
		"endless rate":   func(c *Config) { c.Rate = math.Inf(1) },
		"share":          func(c *Config) { c.SlowShare = math.NaN() },
		"time-out":       func(c *Config) { c.Timeout = -time.Second },
		"duration":       func(c *Config) { c.Duration = -time.Second },
		"warm-up":        func(c *Config) { c.WarmUp = math.MaxInt64 },
		"sender":         func(c *Config) { c.Sender = "a@x>\r\nRCPT TO:<b@y" },
		"domain":         func(c *Config) { c.Domains = []string{"b.example", "c example"} },
		"null in domain": func(c *Config) { c.Domains = []string{"b\x00"} },
	} {
		cfg := Config{Target: "127.0.0.1:1", Messages: 1}
		change(&cfg)
		if _, err := cfg.withDefaults(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (Config{Target: "127.0.0.1:1", Messages: 1, WarmUp: most, Sender: "zoë@b.example"}).withDefaults(t.Context()); err != nil {
		t.Error(err)
	}
}
