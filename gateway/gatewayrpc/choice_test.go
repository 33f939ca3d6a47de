package gatewayrpc

import (
	"testing"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// Which of two spools gets the next message.
func TestChoice(t *testing.T) {
	now := time.Now()
	long := now.Add(-time.Minute)
	for name, test := range map[string]struct {
		a, b *stream
		want string
	}{
		"fewer octets":                    {&stream{frames: 1, octets: 9000, heard: now}, &stream{frames: 1, octets: 8000, heard: now}, "b"},
		"fewer messages":                  {&stream{frames: 3, octets: 900, heard: now}, &stream{frames: 2, octets: 1000, heard: now}, "b"},
		"fewer large messages":            {&stream{large: 1}, &stream{frames: 5, octets: 5000, heard: now}, "b"},
		"one had no room":                 {&stream{aside: now.Add(time.Minute)}, &stream{frames: 50, octets: 50000, heard: now}, "b"},
		"one had no room a while ago":     {&stream{aside: long}, &stream{frames: 50, octets: 50000, heard: now}, "a"},
		"one owes an answer for long":     {&stream{frames: 1, octets: 1000, heard: long}, &stream{frames: 50, octets: 50000, heard: now}, "b"},
		"one owes nothing for long":       {&stream{heard: long}, &stream{frames: 50, octets: 50000, heard: now}, "a"},
		"one takes nothing":               {&stream{frames: 1, octets: 1000, heard: now, pushing: now.Add(-time.Second)}, &stream{frames: 50, octets: 50000, heard: now}, "b"},
		"both are slow, one has less":     {&stream{aside: now.Add(time.Minute)}, &stream{frames: 1, octets: 1000, heard: long}, "a"},
		"one has large messages, no more": {&stream{large: 3}, &stream{large: 2}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			c := idle(t)
			test.a.name, test.b.name = "a", "b"
			c.streams = []*stream{test.a, test.b}
			for range 4 { // whoever's turn it is
				if got, _ := c.best(nil); got.name != test.want {
					t.Errorf("got %s", got.name)
				}
			}
		})
	}
}

// A spool whose stream broke may have made a message durable, also where it has said since that it has no room: nobody may
// judge that message as if it were new.
func TestLostSpoolMakesItAgain(t *testing.T) {
	for name, c := range map[string]*call{
		"new": {}, "sent": {seen: []string{"a"}}, "lost": {lost: []string{"a"}},
	} {
		c.begin = &spoolv1.SubmitBegin{}
		if again := c.frame().GetMessage().GetBegin().GetAgain(); again != (name != "new") {
			t.Errorf("%s: submitted again is %v", name, again)
		}
	}
}

// Equal spools take turns.
func TestTurns(t *testing.T) {
	c := idle(t, "a", "b", "c")
	got := map[string]int{}
	for range 30 {
		s, _ := c.best(nil)
		got[s.name]++
	}
	if got["a"] != 10 || got["b"] != 10 || got["c"] != 10 {
		t.Errorf("turns: %v", got)
	}
}
