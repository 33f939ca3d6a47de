package worker

import (
	"testing"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

func TestStock(t *testing.T) {
	const parser, deliver = spoolv1.Stage_STAGE_PARSER, spoolv1.Stage_STAGE_DELIVER
	for _, c := range []struct {
		stage    spoolv1.Stage
		capacity int
		took     time.Duration
		want     int
	}{
		{parser, 2, 0, 4},
		{parser, 2, 400 * time.Microsecond, 4},
		{parser, 2, 3 * time.Millisecond, 4},
		{parser, 2, 12 * time.Millisecond, 2},
		{parser, 2, time.Hour, 2},
		{parser, 48, 0, 96},
		{parser, 100, time.Hour, 100},
		{deliver, 2, 0, 0},
	} {
		s := newStock(c.stage, c.capacity)
		if c.stage == parser && s.jobs() != c.capacity {
			t.Errorf("before the first job %d wait, want the capacity", s.jobs())
		}
		changed := false
		for range 100 {
			changed = s.learn(c.took) || changed
		}
		if got := s.jobs(); got != c.want || changed != (got != s.capacity) {
			t.Errorf("%s, %d at once, %s each: %d wait, want %d; changed: %v", c.stage, c.capacity, c.took, got, c.want, changed)
		}
	}
}

// A job that takes long in between does not empty the stock, but many do.
func TestStockForgetsSlowly(t *testing.T) {
	s := newStock(spoolv1.Stage_STAGE_FILTER, 2)
	for range 100 {
		s.learn(100 * time.Microsecond)
	}
	if s.learn(time.Millisecond); s.jobs() != 2*maxStock {
		t.Errorf("%d wait after one longer job", s.jobs())
	}
	for range 100 {
		s.learn(20 * time.Millisecond)
	}
	if s.jobs() != 2 {
		t.Errorf("%d wait where jobs take long", s.jobs())
	}
}
