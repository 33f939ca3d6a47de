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

// star varies one thing at a time.
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
		with(func(d *dimensions) { d.sessions = 10_000 }),
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
	e := entry{
		group: group, name: name, system: "rohrpost", start: peers.Rohrpost(m.Rohrpost, m.Rohrload, how),
		next: !how.Discard && group != durable, load: d.load(m.Full),
	}
	// Start and stop of the servers and the database take some 2 s, the warm-up and the measurement what they say.
	e.takes = 3*time.Second + e.load.ramp + e.load.warmFor + e.load.duration
	if e.next {
		e.load = d.wholeLoad(m.Full)
		e.takes = e.load.wholeTakes(d)
	}
	m.entries = append(m.entries, e)
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
		l.duration += 4 * time.Second // a message takes seconds then
	}
	return l
}

// wholeLoad is for the whole way: a time to send, after which everything must still arrive. Many sessions at once need a time
// rather than a number, or most of them would find nothing to send. The warm-up is a load of its own.
func (d dimensions) wholeLoad(full bool) load {
	l := d.load(full)
	l.warmFor = 0
	l.duration -= time.Second
	l.warmUp = int64(d.guess())
	return l
}

// wholeTakes is about how long that takes: the pipeline takes mail in about three times as fast as it sends it on.
func (l load) wholeTakes(d dimensions) time.Duration {
	return 4*time.Second + l.ramp + 3*l.duration + time.Duration(l.warmUp+l.messages)*time.Second/time.Duration(d.guess())
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
	for name, how := range map[string]stack.Options{
		"one process, GOMAXPROCS=1":                        {OneCore: true},
		fmt.Sprintf("one process, %d cores", cores):        {},
		fmt.Sprintf("%d processes, SO_REUSEPORT", cores):   {OneCore: true, Gateways: cores},
		fmt.Sprintf("%d processes, SO_REUSEPORT", 2*cores): {OneCore: true, Gateways: 2 * cores},
	} {
		how.Discard = true
		m.add("gateway models: 4 KiB, 1/session, 1000 sessions", name, how, d)
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
