//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// What a run must have had to prove anything. A loaded machine of two cores has 20 times the mail.
const (
	leastMade     = 80 // percent of the faults of the schedule
	leastOfKind   = 3  // faults of a kind in the schedule, of which one at least must have been made
	leastAccepted = 3  // mails for each second of faults
)

// judgeChaos sees that there was chaos: that faults were made, mail was under way meanwhile, and spools took over from others.
func (r *Report) judgeChaos() {
	made, _ := r.made()
	if made*100 < len(r.Faults)*leastMade {
		r.tame("only %d of %d faults could be made", made, len(r.Faults))
	}
	for _, kind := range r.missing() {
		r.tame("no fault of the kind %s could be made", kind)
	}
	if least := int64(r.Duration.Seconds() * leastAccepted); r.UnderFaults < least {
		r.tame("only %d mails were accepted while things broke; %d are the least", r.UnderFaults, least)
	}
	if r.Counts["journal adopted"] == 0 && r.brokeSpool() {
		r.tame("no spool took over a single message, though spools ended with mail in their hands")
	}
}

func (r *Report) tame(format string, args ...any) {
	r.find(judge.Finding{Rule: judge.Tame, Text: "the run proves too little: " + fmt.Sprintf(format, args...)})
}

// missing lists the kinds of which there are several in the schedule, and none was made.
func (r *Report) missing() []schedule.Kind {
	planned := map[schedule.Kind]int{}
	for _, f := range r.Faults {
		planned[f.Kind]++
	}
	for _, a := range r.actual {
		if a.Err == nil {
			delete(planned, a.Kind)
		}
	}
	var kinds []schedule.Kind
	for kind, n := range planned {
		if n >= leastOfKind {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// brokeSpool tells whether a fault was made that ends a spool.
func (r *Report) brokeSpool() bool {
	return slices.ContainsFunc(r.actual, func(a attempt) bool {
		return a.Err == nil && strings.HasPrefix(a.Node, "spool-") && (a.Kind == schedule.Kill || a.Kind == schedule.Restart)
	})
}

// aftermath is how long after its disk has room again PostgreSQL may still end: it starts anew, and may have to once more.
const aftermath = 30 * time.Second

// judgeUpkeep finds the processes that ended though no fault asked for it. Only PostgreSQL may, where its disk was full.
func (r *Report) judgeUpkeep(endings []cluster.Ending) {
	r.Upkeep = endings
	for _, e := range endings {
		if e.Node == schedule.Postgres && r.wasFull(e.At) {
			continue
		}
		r.broken("%s ended by itself at %s: %s", e.Node, e.At.UTC().Format("15:04:05.000"), e.How)
	}
}

// wasFull tells whether a disk of PostgreSQL was full at a time, or not long before.
func (r *Report) wasFull(at time.Time) bool {
	return slices.ContainsFunc(r.actual, func(a attempt) bool {
		from, until := r.Start.Add(a.From), r.Start.Add(a.Until+aftermath)
		return a.Kind == schedule.Fill && strings.HasPrefix(a.Node, schedule.Postgres) && at.After(from) && at.Before(until)
	})
}
