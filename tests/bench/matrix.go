package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// Matrix measures this pipeline. The short form varies one thing at a time around 4 KiB, plain, 10 messages in each
// session, 50 sessions; the full one has every combination.
func Matrix(ctx context.Context, o Options) (*report.Report, error) {
	m := matrix{Options: o}
	m.reception()
	m.models()
	m.parsers()
	m.together()
	m.study()
	return run(ctx, o, m.entries)
}

type matrix struct {
	Options
	entries []entry
}

// The three ways through the pipeline.
const (
	discarding = "reception, discarding spool"
	durable    = "reception, durable"
	whole      = "whole pipeline"
)

// dimensions of a case of reception.
type dimensions struct {
	size, perSession, sessions int
	startTLS                   bool
}

var base = dimensions{size: 4 << 10, perSession: 10, sessions: 50}

func (d dimensions) name() string {
	tls := "plain"
	if d.startTLS {
		tls = "STARTTLS"
	}
	return fmt.Sprintf("%s, %s, %d/session, %d sessions", octets(d.size), tls, d.perSession, d.sessions)
}

func octets(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// star varies one thing at a time. 10 000 sessions have one message each: with ten, a session would take longer than a case.
func star() []dimensions {
	with := func(change func(*dimensions)) dimensions {
		d := base
		change(&d)
		return d
	}
	return []dimensions{
		base,
		with(func(d *dimensions) { d.size = 64 << 10 }),
		with(func(d *dimensions) { d.size = 1 << 20 }),
		with(func(d *dimensions) { d.startTLS = true }),
		with(func(d *dimensions) { d.perSession = 1 }),
		with(func(d *dimensions) { d.sessions = 1000 }),
		with(func(d *dimensions) { d.perSession, d.sessions = 1, 10_000 }),
	}
}

// everything is every combination.
func everything() []dimensions {
	var all []dimensions
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		for _, startTLS := range []bool{false, true} {
			for _, perSession := range []int{1, 10} {
				for _, sessions := range []int{50, 1000, 10_000} {
					all = append(all, dimensions{size: size, startTLS: startTLS, perSession: perSession, sessions: sessions})
				}
			}
		}
	}
	return all
}

func (m *matrix) reception() {
	all := star()
	if m.Full {
		all = everything()
	}
	for _, group := range []string{discarding, durable, whole} {
		for _, d := range all {
			m.add(group, d.name(), stack.Options{Discard: group == discarding, StartTLS: d.startTLS}, d)
		}
	}
}

// add adds a case of this pipeline.
func (m *matrix) add(group, name string, how stack.Options, d dimensions) {
	next := !how.Discard && group != durable
	m.entries = append(m.entries, d.entry(group, name, "rohrpost", peers.Rohrpost(m.Rohrpost, m.Rohrload, how), next, m.Full))
}

// entry is a case of these dimensions; with next it is measured the whole way.
func (d dimensions) entry(group, name, system string, start peers.Start, next, full bool) entry {
	e := entry{group: group, name: name, system: system, start: start, next: next, load: d.load(full)}
	// Start and stop of the servers and the database take some 2 s, the warm-up and the measurement what they say.
	e.takes = 3*time.Second + e.load.warmFor + e.load.duration
	if next {
		e.load = d.wholeLoad(full)
		e.takes = e.load.wholeTakes(d)
	}
	return e
}

// load is for reception: by time.
func (d dimensions) load(full bool) load {
	l := load{sessions: d.sessions, perSession: d.perSession, size: d.size, startTLS: d.startTLS, warmFor: 2 * time.Second, duration: 4 * time.Second}
	if full {
		l.duration = 8 * time.Second
	}
	if d.sessions >= 10_000 {
		l.ramp = 3 * time.Second
		l.warmFor += l.ramp
	}
	l.duration = d.lasts(l.duration, 2*d.guess())
	return l
}

const (
	leastMessages = 500              // a case rests on, about
	longest       = 40 * time.Second // a case sends
)

// lasts is how long messages are sent where so many go through each second: at least as given, long enough for some messages,
// and for two lives of a session, or it would be a matter of chance how many end. Where those would take too long, the report
// says nothing of sessions.
func (d dimensions) lasts(least time.Duration, guess int) time.Duration {
	takes := func(messages int) time.Duration { return time.Duration(messages) * time.Second / time.Duration(guess) }
	least = max(least, takes(leastMessages))
	if lives := takes(2 * d.sessions * d.perSession); lives > least && lives <= longest {
		return lives
	}
	return least
}

// wholeLoad is for the whole way: a time to send, after which everything must still arrive. Many sessions at once need a time
// rather than a number, or most of them would find nothing to send. The warm-up is a load of its own.
func (d dimensions) wholeLoad(full bool) load {
	l := d.load(full)
	l.warmFor = l.ramp // sessions that are still to come are no load
	l.duration = d.lasts(3*time.Second, d.guess())
	l.warmUp = int64(d.guess())
	return l
}

// wholeTakes is about how long that takes, what is still under way at the end of the sending included.
func (l load) wholeTakes(d dimensions) time.Duration {
	sending := l.ramp + l.duration
	return 4*time.Second + sending + time.Duration(float64(sending)*d.behind()) + time.Duration(l.warmUp+l.messages)*time.Second/time.Duration(d.guess())
}

// behind is how much longer than the sending it takes until everything has arrived. The verdict before the reply keeps that short;
// of many sessions, each has a message under way.
func (d dimensions) behind() float64 {
	if d.sessions >= 1000 {
		return 1
	}
	return 0.5
}

// guess is about how many messages a second a small machine takes the whole way; it only bounds the time of a case.
func (d dimensions) guess() int {
	switch {
	case d.size >= 1<<20:
		return 25
	case d.size >= 64<<10:
		return 200
	}
	return 700
}

// models are the ways to use cores: the gateway alone, with one message in each session, so that sessions are what costs.
func (m *matrix) models() {
	d := base
	d.perSession, d.sessions = 1, 1000
	cores := runtime.NumCPU()
	for _, model := range []struct {
		name string
		how  stack.Options
	}{
		{"one process, GOMAXPROCS=1", stack.Options{OneCore: true}},
		{fmt.Sprintf("one process, %d cores", cores), stack.Options{}},
		{fmt.Sprintf("%d processes, SO_REUSEPORT", cores), stack.Options{OneCore: true, Gateways: cores}},
		{fmt.Sprintf("%d processes, SO_REUSEPORT", 2*cores), stack.Options{OneCore: true, Gateways: 2 * cores}},
	} {
		model.how.Discard = true
		m.add("gateway models: 4 KiB, 1/session, 1000 sessions", model.name, model.how, d)
	}
}

// parsers are the ways to run them: in one process, and one in each.
func (m *matrix) parsers() {
	counts := []int{1, 4}
	if m.Full {
		counts = []int{1, 2, 4, 8}
	}
	for _, n := range counts {
		m.add("parsers, whole pipeline, 64 KiB", fmt.Sprintf("%d goroutines", n), stack.Options{ParserJobs: n}, star()[1])
		if n > 1 {
			m.add("parsers, whole pipeline, 64 KiB", fmt.Sprintf("%d processes", n), stack.Options{ParserJobs: 1, Parsers: n}, star()[1])
		}
	}
}

// together compares the whole pipeline in one process and in six.
func (m *matrix) together() {
	m.add("one process or six, whole pipeline", "rohrpost up", stack.Options{Together: true}, base)
	m.add("one process or six, whole pipeline", "six processes", stack.Options{}, base)
}

// study is the workload of the study this project came from: 10 000 sessions at once of 7 round trips each, 10 ms before each
// reply.
func (m *matrix) study() {
	d := base
	d.perSession, d.sessions = 1, 10_000
	m.add("study: 10 000 sessions, 7 round trips, 10 ms before each reply", "whole pipeline", stack.Options{ReplyDelay: 10 * time.Millisecond}, d)
	last := &m.entries[len(m.entries)-1]
	last.load.messages, last.load.duration = 20_000, 0 // each session sends one, so all 10 000 are at it
	last.takes = 40 * time.Second
}
