package spool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/proto/pattern"
)

// MaxSuspensions is how many suspensions there may be at a time: the destination of each message is compared with all.
const MaxSuspensions = 100

// Suspension is an order of an operator that nothing is sent to some destinations.
type Suspension struct {
	Pattern pattern.Pattern // of destinations
	Until   time.Time       // on the store's clock; the zero time where it lasts until it is resumed
	Reason  string          // for people; at most 500 octets
	By      string          // who ordered it; may be empty
	Since   time.Time
}

func (s *Suspension) ended(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

func (s *Suspension) equal(o *Suspension) bool {
	return s.Pattern == o.Pattern && s.Until.Equal(o.Until) && s.Reason == o.Reason && s.By == o.By && s.Since.Equal(o.Since)
}

// String is the pattern with when it ends.
func (s *Suspension) String() string {
	if s.Until.IsZero() {
		return s.Pattern.String()
	}
	return s.Pattern.String() + " until " + s.Until.UTC().Format(time.RFC3339)
}

// SuspensionOf is the suspension of a destination that ends last; nil where none names it.
func SuspensionOf(list []Suspension, destination string) *Suspension {
	var last *Suspension
	for i := range list {
		s := &list[i]
		if isPseudo(destination) || !s.Pattern.Match(destination) {
			continue
		}
		if last == nil || s.Until.IsZero() || !last.Until.IsZero() && s.Until.After(last.Until) {
			last = s
		}
	}
	return last
}

// DestinationOf is the destination of an address: its domain in lower case.
func DestinationOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

// suspensionsChanged says what is suspended from now on.
type suspensionsChanged struct{ list []Suspension }

func (e suspensionsChanged) apply(c *core) {
	c.suspensions = e.list
	c.suspend()
}

// suspend obeys the suspensions that have not ended, and looks again when the next of them does.
func (c *core) suspend() {
	c.timers.stop(c.nextLift)
	c.nextLift = nil
	var patterns []pattern.Pattern
	var next time.Time
	for i := range c.suspensions {
		s := &c.suspensions[i]
		if s.ended(c.now) {
			continue
		}
		patterns = append(patterns, s.Pattern)
		if !s.Until.IsZero() && (next.IsZero() || s.Until.Before(next)) {
			next = s.Until
		}
	}
	if !next.IsZero() {
		c.nextLift = c.timers.start(next, c.suspend)
	}
	lifted := slices.ContainsFunc(c.sched.suspended, func(p pattern.Pattern) bool { return !slices.Contains(patterns, p) })
	c.sched.suspend(patterns)
	if lifted {
		c.enqueueParked()
	}
}

// enqueueParked sets going what is due and waits in memory, since something else of its message is under way. What waits in
// the store is claimed.
func (c *core) enqueueParked() {
	for _, m := range c.messages {
		for _, d := range slices.Clone(m.deliveries) {
			r := m.rows[d.dest]
			if m.life == lifeLive && d.state == unitWaiting && r != nil && !c.now.Before(r.NextAt) && slices.Contains(m.deliveries, d) {
				c.enqueueAlone(d)
			}
		}
	}
}

// suspend says to which destinations nothing is sent from now on.
func (s *scheduler) suspend(patterns []pattern.Pattern) {
	s.suspended = patterns
	for _, q := range s.queues {
		q.suspended = s.suspends(q.name)
		s.enter(q)
	}
}

// suspends tells whether nothing is sent to a destination. Notifications about its mail are written all the same.
func (s *scheduler) suspends(destination string) bool {
	return !isPseudo(destination) &&
		slices.ContainsFunc(s.suspended, func(p pattern.Pattern) bool { return p.Match(destination) })
}

// parkBatch is how many deliveries for suspended destinations one tick lets wait in the store: a few milliseconds' work.
const parkBatch = 2000

// parkSuspended lets what is ready for suspended destinations wait in the store, so that it does not fill the memory that
// all need. From there it is not claimed before it may be sent, or its time is up.
func (c *core) parkSuspended() {
	if len(c.sched.suspended) == 0 {
		return
	}
	n := 0
	for _, q := range c.sched.queues {
		if !q.suspended {
			continue
		}
		for ; n < parkBatch; n++ {
			j, ok := q.ready.peek()
			if !ok {
				break
			}
			q.ready.pop()
			c.sched.weigh(q)
			if !j.dropped {
				c.park(j.delivery)
				c.commit(j.msg, nil, nil)
			}
		}
		c.sched.tidy(q)
	}
}

// toldSuspended says how much of what was ordered to be sent waits, since its destination is suspended.
func (c *core) toldSuspended(m *message, verb Verb) string {
	if verb != VerbRelease && verb != VerbRetry {
		return ""
	}
	n := 0
	for _, d := range m.deliveries {
		if d.state != unitOut && c.sched.suspends(d.dest) {
			n += len(d.recipients)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d wait, since their destination is suspended", n)
}

// readSuspensions makes the core obey what is suspended now. It is called for the incarnation that the core has, 0 where
// that is none yet.
func (s *Spool) readSuspensions(ctx context.Context, inc Incarnation) error {
	list, err := s.store.Suspensions(ctx)
	if err != nil {
		return fmt.Errorf("asking for suspended destinations: %w", err)
	}
	s.post(item{do: func(ctx context.Context) {
		// What was read for an incarnation that is lost may be older than what the next one has read.
		if s.core.inc != inc || slices.EqualFunc(s.core.suspensions, list, func(a, b Suspension) bool { return a.equal(&b) }) {
			return
		}
		s.apply(ctx, suspensionsChanged{list})
		words := make([]string, len(list))
		for i := range list {
			words[i] = list[i].String()
		}
		s.log.InfoContext(ctx, "The suspended destinations have changed", "suspended", words)
		notifyChan(s.poke)
	}})
	return nil
}
