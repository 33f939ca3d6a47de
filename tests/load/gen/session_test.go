package gen

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/mail"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// A session that the end of the time cut short is none that the server has finished.
func TestCutSessionsDoNotCount(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Delay: sink.Duration(100 * time.Millisecond)})
	res := run1(t, Config{Target: s.SMTP(), Sessions: 4, PerSession: 10_000, Duration: 500 * time.Millisecond})
	if res.Sessions != 4 || res.Completed != 0 || res.Cut != 4 || res.SessionRate() != 0 || res.Session.Count != 0 || res.Accepted == 0 {
		t.Errorf("%+v", res)
	}
}

// Nor is one that breaks with its last message.
func TestBrokenSessionsDoNotCount(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Dot, Every: 2, Then: sink.Reset})
	res := run1(t, Config{Target: s.SMTP(), PerSession: 2, Messages: 4})
	if res.Unknown != 2 || res.Completed != 0 || res.Cut != 2 {
		t.Errorf("%+v", res)
	}
}

// Those that began in the warm-up and end after it count, and those that end in it don't.
func TestCompletedSessions(t *testing.T) {
	s := startSink(t, sink.Config{})
	res := run1(t, Config{Target: s.SMTP(), PerSession: 4, WarmUp: 6, Messages: 15}) // 21 messages: 4, 4 (2 of them measured), 4, 4, 4, 1
	if res.Sessions != 6 || res.Completed != 4 || res.Session.Count != 4 || res.Cut != 0 {
		t.Errorf("%d opened, %d completed, %d cut, %d times", res.Sessions, res.Completed, res.Cut, res.Session.Count)
	}
	took := res.End.Sub(res.Warm).Seconds()
	if got, want := res.SessionRate(), 4/took; got < 0.99*want || got > 1.01*want {
		t.Errorf("%g sessions/s, want %g", got, want)
	}
}

// Sessions count as open from the greeting on, all of them: ten that get no answer to their mail are open at once, and those
// that nobody greets are not.
func TestPeak(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Connect, Skip: 10, Then: sink.Close}, sink.Rule{At: sink.Dot, Then: sink.Silence})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = s.Wait(ctx, 10)
		cancel()
	}()
	res, err := Run(ctx, Config{Target: s.SMTP(), Sessions: 13, PerSession: 1, Duration: time.Hour, Grace: time.Millisecond})
	if err != nil || res.Peak != 10 || res.Unknown != 10 {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestSlowOne(t *testing.T) {
	for _, c := range []struct {
		sessions int
		share    float64
		want     int
	}{{10, 0.1, 1}, {50, 0.5, 25}, {3, 0, 0}, {7, 1, 7}, {1000, 0.033, 33}, {10, 0.3, 3}, {200, 0.01, 2}} {
		slow, gap, longest := 0, 0, 0
		for n := range c.sessions {
			if gap++; slowOne(n, c.share) {
				slow++
				longest, gap = max(longest, gap), 0
			}
		}
		if slow != c.want {
			t.Errorf("of %d sessions with a share of %g are %d slow, want %d", c.sessions, c.share, slow, c.want)
		}
		if slow > 0 && float64(longest) > 1/c.share+1 {
			t.Errorf("a share of %g: %d sessions from one slow one to the next", c.share, longest)
		}
	}
}

// Slow clients take their time for the content, in whichever way they send it, and the others don't wait for them.
func TestSlowClients(t *testing.T) {
	const least = 400 * time.Millisecond // 4 KB at 10 000 octets a second, a piece each tenth of it
	for name, chunk := range map[string]int{"DATA": 0, "BDAT": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			s := startSink(t, sink.Config{})
			cfg := Config{Target: s.SMTP(), Sessions: 4, Messages: 4, PerSession: 1, SlowShare: 1, SlowRate: 10_000, Chunk: chunk, Mails: []*mail.Mail{mail.Sized(4000)}}
			res := run1(t, cfg)
			if res.Accepted != 4 || res.Message.Min < float64(least.Milliseconds()) {
				t.Errorf("%d accepted, the fastest after %g ms, want at least %s", res.Accepted, res.Message.Min, least)
			}
			if st := s.Stats(); st.Distinct != 4 || len(st.Faults) > 0 {
				t.Errorf("%+v", st)
			}
			cfg.SlowShare, cfg.SlowRate = 0.25, 400 // the slow one would need 10 s
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_ = s.Wait(ctx, 4+3)
				cancel()
			}()
			cfg.Grace = time.Millisecond
			if res, err := Run(ctx, cfg); err != nil || res.Accepted != 3 {
				t.Errorf("beside a slow client: %v, %+v", err, res)
			}
		})
	}
}

// A session waits before each message but its first, and the wait is none of the message's time.
func TestThink(t *testing.T) {
	const think = 2 * time.Second
	s := startSink(t, sink.Config{})
	begun := time.Now()
	res := run1(t, Config{Target: s.SMTP(), PerSession: 3, Messages: 3, Think: think})
	if took := time.Since(begun); res.Accepted != 3 || took < 2*think || res.Session.Min < 2*float64(think.Milliseconds()) {
		t.Errorf("%d accepted in %s, the session took %g ms; want two waits of %s", res.Accepted, took, res.Session.Min, think)
	}
	if res.Message.Min >= float64(think.Milliseconds()) {
		t.Errorf("the fastest message took %g ms", res.Message.Min)
	}
}

// Connections come from as many addresses as they are told.
func TestSources(t *testing.T) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	seen := map[string]bool{}
	d := newDialer(&Config{Target: lis.Addr().String(), Sources: 3, Timeout: time.Minute})
	for range 6 {
		conn, err := d.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		taken, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		host, _, _ := net.SplitHostPort(taken.RemoteAddr().String())
		seen[host] = true
	}
	if fmt.Sprint(len(seen), seen["127.0.0.1"], seen["127.0.0.3"]) != "3 true true" {
		t.Errorf("connections came from %v", seen)
	}
}

// What can't be sent any more has failed: the run ends, and nothing is forgotten.
func TestNobodyIsThere(t *testing.T) {
	s := startSink(t, sink.Config{})
	target := s.SMTP()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"a number of messages": {Sessions: 3, Messages: 20, Timeout: 200 * time.Millisecond},
		"an open rate":         {Sessions: 3, Rate: 100, Messages: 20},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Target = target
			res := run1(t, cfg)
			if res.Failed != 20 || res.Messages != 20 || res.Accepted != 0 || res.Errors["dial: refused"] == 0 {
				t.Errorf("%+v", res)
			}
		})
	}
	for name, cfg := range map[string]Config{
		"a warm-up by number": {WarmUp: 10}, "a warm-up by time": {WarmFor: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Target, cfg.Duration, cfg.Timeout = target, 100*time.Millisecond, 200*time.Millisecond
			begun := time.Now()
			if res := run1(t, cfg); res.Rate() != 0 || res.Accepted != 0 || time.Since(begun) > 30*time.Second { // run1 ends it after a minute
				t.Errorf("after %s: %+v", time.Since(begun), res)
			}
		})
	}
}

// With a rate and no number of messages in each, every session has one, so that more can begin.
func TestOpenRateOpensSessions(t *testing.T) {
	s := startSink(t, sink.Config{})
	res := run1(t, Config{Target: s.SMTP(), Sessions: 2, Rate: 1000, Messages: 20})
	if res.Accepted != 20 || res.Sessions != 20 {
		t.Errorf("%d sessions, %d messages", res.Sessions, res.Messages)
	}
}

// A session that breaks leaves the rest of its messages to nobody where sessions begin by a rate.
func TestOpenRateCountsWhatBroke(t *testing.T) {
	s := startSink(t, sink.Config{}, sink.Rule{At: sink.Mail, Skip: 2, Times: 1, Then: sink.Reset})
	res := run1(t, Config{Target: s.SMTP(), Sessions: 1, Rate: 100, PerSession: 5, Messages: 5})
	if res.Accepted != 2 || res.Failed != 3 || res.Messages != 5 || res.Sessions != 1 || res.Cut != 1 {
		t.Errorf("%+v", res)
	}
}

// Nothing is told any more once the run has returned.
func TestProgressEnds(t *testing.T) {
	s := startSink(t, sink.Config{})
	begun, told, blocked := make(chan struct{}), 0, make(chan struct{})
	cfg := Config{Target: s.SMTP(), Duration: 1500 * time.Millisecond, Progress: func(Progress) {
		if told == 0 {
			close(begun)
		}
		<-blocked
		told++
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run1(t, cfg)
		told++ // the race detector sees who else might
	}()
	<-begun
	select {
	case <-ended:
		t.Error("it returned while its progress was being told")
	case <-time.After(3 * time.Second):
	}
	close(blocked)
	<-ended
}
