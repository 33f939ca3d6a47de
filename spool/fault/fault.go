// Package fault lets tests hurt a spool at named places: make a step fail, stall there, or end the process at once, as a
// kill would. The places are compiled into every build and do nothing unless faults are given; who configures them must
// see that production never does (spool.faults needs spool.unsafe).
//
//	result.durable=exit                      end the process when an outcome is durable and its worker not told
//	commit.done=fail@2,lease.renew=stall:15s the second commit's outcome is unknown, and a renewal comes late
//
// A fault strikes the first time its place is reached; @3 means the third time, @3+ the third and each one after.
package fault

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Point is a place in the spool that a fault can strike.
type Point string

// The places. Those named writing lie before a transaction with such rows, those named durable behind its COMMIT, before
// anybody hears of it.
const (
	AcceptReceived Point = "accept.received" // a gateway handed a message over, nothing of it is written
	AcceptWriting  Point = "accept.writing"
	AcceptDurable  Point = "accept.durable" // the message is accepted, its gateway not told
	ContentDurable Point = "content.durable"
	PermitWriting  Point = "permit.writing"
	PermitDurable  Point = "permit.durable" // the permit counts, its worker not told
	ResultWriting  Point = "result.writing" // a worker told how a delivery went, nothing of it is written
	ResultDurable  Point = "result.durable" // the result counts, its worker not told
	JobSend        Point = "job.send"       // a job is about to go to its worker
	ClaimDurable   Point = "claim.durable"  // messages are claimed, and not in memory yet
	LeaseRenew     Point = "lease.renew"    // the lease is about to be renewed
	HandOver       Point = "handover"       // a spool that stops is about to hand its messages over
	CommitWritten  Point = "commit.written" // all rows of a batch are written, COMMIT is not sent
	CommitDone     Point = "commit.done"    // COMMIT went through; to fail here is not to know that
	AdoptFenced    Point = "adopt.fenced"   // a dead spool is fenced, its messages are nobody's
	AdoptWritten   Point = "adopt.written"  // its messages have waiting rows, COMMIT is not sent
)

// failing are the places where a step can fail. At the others it has been done already, or can't be refused.
var failing = []Point{
	AcceptReceived, AcceptWriting, PermitWriting, ResultWriting, LeaseRenew, HandOver, CommitWritten, CommitDone, AdoptFenced,
	AdoptWritten,
}

var points = append(slices.Clone(failing), AcceptDurable, ContentDurable, PermitDurable, ResultDurable, JobSend, ClaimDurable)

// Err is the error of a step that a fault made fail.
var Err = errors.New("fault: told to fail")

// ExitCode is how a process ends that a fault ends.
const ExitCode = 86

// Faults are what strikes where. A nil Faults strikes nowhere. It is safe for concurrent use.
type Faults struct {
	log  *slog.Logger
	exit func(int)

	mu    sync.Mutex
	rules map[Point][]*rule
}

type action uint8

const (
	actFail action = iota
	actStall
	actExit
)

// rule is one fault.
type rule struct {
	act     action
	stall   time.Duration
	from    int  // the first time that it strikes, from 1
	ever    bool // it strikes each time after as well
	reached int
}

// Parse reads faults as the package comment shows them, separated by commas. An empty text is none.
func Parse(text string, log *slog.Logger) (*Faults, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // a nil Faults is fit for use: it strikes nowhere
	}
	f := &Faults{log: log, exit: os.Exit, rules: map[Point][]*rule{}}
	for part := range strings.SplitSeq(text, ",") {
		name, what, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("fault %q: write place=fail, place=stall:10s or place=exit, with @3 for the third time", part)
		}
		r, err := parseRule(what)
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", part, err)
		}
		p := Point(name)
		if !slices.Contains(points, p) {
			return nil, fmt.Errorf("fault %q: there is no place %s; there are %v", part, name, points)
		}
		if r.act == actFail && !slices.Contains(failing, p) {
			return nil, fmt.Errorf("fault %q: %s can't fail; it can stall or exit", part, name)
		}
		f.rules[p] = append(f.rules[p], r)
	}
	return f, nil
}

func parseRule(text string) (*rule, error) {
	r := &rule{from: 1}
	what, when, counted := strings.Cut(text, "@")
	if counted {
		when, r.ever = strings.CutSuffix(when, "+")
		n, err := strconv.Atoi(when)
		if err != nil || n < 1 {
			return nil, errors.New("behind @ stands which time, from 1, and + for each one after as well")
		}
		r.from = n
	}
	what, length, stalls := strings.Cut(what, ":")
	switch {
	case what == "fail" && !stalls:
	case what == "exit" && !stalls:
		r.act = actExit
	case what == "stall" && stalls:
		d, err := time.ParseDuration(length)
		if err != nil || d <= 0 {
			return nil, errors.New("stall needs a time, such as stall:10s")
		}
		r.act, r.stall = actStall, d
	default:
		return nil, errors.New("what happens is fail, stall:10s or exit")
	}
	return r, nil
}

// Reach is called where a place is reached. It returns [Err] where the step is to fail, after a while where it is to
// stall, and never where the process ends there.
func (f *Faults) Reach(p Point) error {
	if f == nil {
		return nil
	}
	for _, r := range f.strikes(p) {
		f.log.Warn("A fault strikes", "place", string(p), "time", r.from)
		switch r.act {
		case actExit:
			f.exit(ExitCode)
		case actStall:
			time.Sleep(r.stall)
		case actFail:
			return fmt.Errorf("%w at %s", Err, p)
		}
	}
	return nil
}

// strikes counts that a place is reached and gives the faults that strike now.
func (f *Faults) strikes(p Point) []*rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now []*rule
	for _, r := range f.rules[p] {
		r.reached++
		if r.reached == r.from || r.ever && r.reached > r.from {
			now = append(now, r)
		}
	}
	return now
}
