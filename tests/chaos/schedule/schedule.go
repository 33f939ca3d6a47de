// Package schedule decides which faults a chaos run makes, and when: a pure function of a seed, so that a run that found
// something can be repeated.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. All but Break and Terminate last for a while and are undone then.
const (
	Kill      Kind = "kill"      // SIGKILL, and a new start
	Pause     Kind = "pause"     // SIGSTOP, and SIGCONT
	Restart   Kind = "restart"   // SIGTERM as in an upgrade; of Postgres a fast shutdown
	Immediate Kind = "immediate" // SIGQUIT to Postgres: it ends without a checkpoint
	Terminate Kind = "terminate" // pg_terminate_backend for every client of Postgres
	Isolate   Kind = "isolate"   // the node's link is down: packets vanish
	Partition Kind = "partition" // node and peer don't reach each other; both reach all others
	Slow      Kind = "slow"      // the node's link is slow or late
	Break     Kind = "break"     // every connection of the node is reset
	Fill      Kind = "fill"      // a disk is full
)

// Fault is one fault.
type Fault struct {
	At   time.Duration `json:"at"`             // from the start of the traffic
	For  time.Duration `json:"for,omitempty"`  // how long it lasts
	Kind Kind          `json:"kind"`           //
	Node string        `json:"node"`           // the node, or the disk that is filled
	Peer string        `json:"peer,omitempty"` // the other end of a partition
}

// String is the fault as one line of a report.
func (f Fault) String() string {
	line := fmt.Sprintf("%6.1fs  %s %s", f.At.Seconds(), f.Kind, f.Node)
	if f.Peer != "" {
		line += " from " + f.Peer
	}
	if f.For > 0 {
		line += fmt.Sprintf(" for %.1fs", f.For.Seconds())
	}
	return line
}

// End is when the fault is undone.
func (f Fault) End() time.Duration { return f.At + f.For }

// The nodes that run no service of ours: the database, and where clients and the next hop are.
const (
	Postgres = "postgres"
	Client   = "client"
)

// Plan says what there is to break.
type Plan struct {
	Nodes []string // the services' nodes, such as gateway-1
	Links [][2]string
	Disks []string
}

// margin keeps the first and the last seconds of a run free of faults, so that it starts and ends in traffic.
const margin = 3 * time.Second

// Make makes the faults of a run of a length, ordered by time. The same arguments give the same faults.
//
// Every fault that there can be is a card of a deck. The deck is shuffled and dealt to its end before it is shuffled
// again, so that even a short run has most of them. A card whose node is busy with another fault goes back under the deck.
// In the middle of the run every service is restarted, one after the other, as an upgrade would.
func Make(seed uint64, length time.Duration, plan Plan) []Fault {
	m := &maker{
		rng:  rand.New(rand.NewPCG(seed, 0x726f687270)), //nolint:gosec // it must be repeatable
		plan: plan, busy: map[string]time.Duration{},
	}
	upgradeAt := length * 55 / 100
	m.deal(margin, upgradeAt)
	at := m.upgrade(upgradeAt)
	m.deal(at, length-margin)
	slices.SortStableFunc(m.faults, func(a, b Fault) int { return int(a.At - b.At) })
	return m.faults
}

type maker struct {
	rng    *rand.Rand
	plan   Plan
	deck   []Fault
	busy   map[string]time.Duration // by node or disk, until when
	faults []Fault
}

// deal makes faults from one time to another; all of them end by then.
func (m *maker) deal(from, to time.Duration) {
	for at := from; ; at += m.between(300*time.Millisecond, 2200*time.Millisecond) {
		f, ok := m.draw(at, to)
		if !ok {
			if at >= to {
				return
			}
			continue
		}
		m.take(f)
	}
}

// take enters a fault and makes its node busy, and for a moment more, so that there is something left to break again.
func (m *maker) take(f Fault) {
	m.faults = append(m.faults, f)
	for _, name := range []string{f.Node, f.Peer} {
		if name != "" {
			m.busy[name] = f.End() + settle(f)
		}
	}
}

// settle is how long a node is left alone after a fault. Everything rests on Postgres: it gets more time, so that mail
// flows in between.
func settle(f Fault) time.Duration {
	if f.Node == Postgres || strings.HasPrefix(f.Node, Postgres) {
		return 5 * time.Second
	}
	return 2 * time.Second
}

// draw takes the first card of the deck that fits.
func (m *maker) draw(at, to time.Duration) (Fault, bool) {
	if len(m.deck) == 0 {
		m.deck = m.cards()
		m.rng.Shuffle(len(m.deck), func(i, j int) { m.deck[i], m.deck[j] = m.deck[j], m.deck[i] })
	}
	for i, f := range m.deck {
		if m.isBusy(f.Node, at) || m.isBusy(f.Peer, at) {
			continue
		}
		f.At, f.For = at.Round(time.Millisecond), m.lasts(f)
		if f.End() > to {
			continue
		}
		m.deck = slices.Delete(m.deck, i, i+1)
		return f, true
	}
	return Fault{}, false
}

// isBusy tells whether a node has another fault. The disks of Postgres are Postgres's.
func (m *maker) isBusy(name string, at time.Duration) bool {
	if name == "" {
		return false
	}
	for busy, until := range m.busy {
		same := busy == name || strings.HasPrefix(busy, Postgres) && strings.HasPrefix(name, Postgres)
		if same && until > at {
			return true
		}
	}
	return false
}

// cards are all faults that the plan allows, without their times.
func (m *maker) cards() []Fault {
	var deck []Fault
	for _, node := range m.plan.Nodes {
		for _, kind := range []Kind{Kill, Pause, Restart, Isolate, Break, Slow} {
			deck = append(deck, Fault{Kind: kind, Node: node})
		}
	}
	for _, kind := range []Kind{Kill, Pause, Restart, Immediate, Terminate, Isolate, Break, Slow} {
		deck = append(deck, Fault{Kind: kind, Node: Postgres})
	}
	for _, link := range m.plan.Links {
		deck = append(deck, Fault{Kind: Partition, Node: link[0], Peer: link[1]})
	}
	for _, disk := range m.plan.Disks {
		deck = append(deck, Fault{Kind: Fill, Node: disk})
	}
	return deck
}

// lasts is how long a fault lasts. Some stay below the spool's lease, some go over it.
func (m *maker) lasts(f Fault) time.Duration {
	switch {
	case f.Kind == Break || f.Kind == Terminate:
		return 0
	case f.Kind == Restart && f.Node != Postgres:
		return 0 // it starts when it has stopped
	case strings.HasPrefix(f.Node, Postgres):
		return m.between(300*time.Millisecond, 4*time.Second)
	case f.Kind == Kill:
		return m.between(0, 6*time.Second)
	default:
		return m.between(500*time.Millisecond, 8*time.Second)
	}
}

// upgrade restarts each node, one after the other. It waits until no other fault lasts, and returns when it is over.
func (m *maker) upgrade(at time.Duration) time.Duration {
	for _, until := range m.busy {
		at = max(at, until)
	}
	for _, node := range m.plan.Nodes {
		m.take(Fault{At: at.Round(time.Millisecond), Kind: Restart, Node: node})
		at += m.between(600*time.Millisecond, 1200*time.Millisecond)
	}
	return at
}

func (m *maker) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(m.rng.Int64N(int64(high-low)+1))).Round(time.Millisecond)
}
