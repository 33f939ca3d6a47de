package spool

import (
	"slices"
	"time"
)

// weigh looks how full a queue is. What one claim may bring still fits in after the last that wants more.
func (s *scheduler) weigh(q *destinationQueue) {
	if q.name == bounceQueue {
		return
	}
	full := max(2*q.limit, s.cfg.Messages/10)
	nearly := max(full-s.cfg.claimsFor(), full/2)
	n := q.ready.len()
	q.diverting = q.diverting || n >= full
	q.crowded = n >= nearly || q.crowded && n > nearly/2
}

// diverts tells whether new mail for a destination waits in the store.
func (s *scheduler) diverts(destination string) bool {
	q := s.queues[destination]
	return q != nil && q.diverting || s.suspends(destination)
}

// allCrowded lists the destinations for which nothing more is wanted from the store.
func (s *scheduler) allCrowded() []string {
	var names []string
	for name, q := range s.queues {
		if q.crowded {
			names = append(names, name)
		}
	}
	return names
}

// claimed takes note of a claim after which no more is due: of what destinations it left nothing in the store.
func (s *scheduler) claimed(now time.Time, messages []*Stored, without []string) {
	n := dueFor(now, messages)
	for name, q := range s.queues {
		if q.diverting && !q.crowded && !q.suspended && n[name] < s.cfg.claimsFor() && !slices.Contains(without, name) {
			q.diverting = false
			s.tidy(q)
		}
	}
}

// dueFor counts by destination what a claim brought, without what it brought ahead of its time: behind that there is nothing
// that is due.
func dueFor(now time.Time, messages []*Stored) map[string]int {
	n := map[string]int{}
	for _, m := range messages {
		for i := range m.Waits {
			if !m.Waits[i].NextAt.After(now) {
				n[m.Waits[i].Destination]++
			}
		}
	}
	return n
}

// wantsMore tells whether a claim brought as much as one may for a destination that can take more at once.
func (s *scheduler) wantsMore(now time.Time, messages []*Stored) bool {
	for name, count := range dueFor(now, messages) {
		if q := s.queues[name]; count >= s.cfg.claimsFor() && q != nil && !q.crowded && !q.suspended {
			return true
		}
	}
	return false
}
