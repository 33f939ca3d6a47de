package report

import (
	"math"

	"github.com/rohrpost/rohrpost/tests/load/machine"
)

// none is what a figure is of a run that has none. Zero is a figure: a run in which nothing was accepted counts.
var none = math.NaN()

// Rate is the number of messages accepted each second: of all generators together.
func Rate(r *Run) float64 {
	if len(r.Gens) == 0 {
		return none
	}
	var sum float64
	for _, g := range r.Gens {
		sum += g.Rate()
	}
	return sum
}

// WholeRate is the number of messages each second that went the whole way to the sink, from the first one sent to the last that
// arrived: known where both ends are on one machine, and so on one clock.
func WholeRate(r *Run) float64 {
	switch {
	case r.Whole > 0:
		return float64(accepted(r)) / r.Whole
	case len(r.Gens) > 0 && len(r.Sinks) > 0 && distinct(r) == 0:
		return 0
	}
	return none
}

// ArrivalRate is the number of messages each second that arrived, by the sinks' clocks alone. It is for ends on two machines:
// where WholeRate is known there is none.
func ArrivalRate(r *Run) float64 {
	if r.Whole > 0 || len(r.Sinks) == 0 {
		return none
	}
	var sum float64
	for _, s := range r.Sinks {
		if took := s.Last.Sub(s.First).Seconds(); took > 0 && !s.First.IsZero() {
			sum += float64(s.Distinct-1) / took
		}
	}
	return sum
}

// SessionRate is the number of sessions each second that had all their messages. There is none where sessions are kept, nor
// where the measurement was too short for them: those that ended are the fast ones then, or all of one wave.
func SessionRate(r *Run) float64 {
	if !short(r) || brief(r) {
		return none
	}
	var sum float64
	for _, g := range r.Gens {
		sum += g.SessionRate()
	}
	return sum
}

// Open is the highest number of sessions that were open at once.
func Open(r *Run) float64 {
	var sum int64
	for _, g := range r.Gens {
		sum += g.Peak
	}
	if sum == 0 {
		return none
	}
	return float64(sum)
}

// Little is concurrency ÷ throughput in milliseconds: the mean time in the system that follows from Little's law, of a session
// where each has few messages, else of a message. Where the mean that was measured lies far below, the generator held
// sessions back; where both rise with the concurrency and the rate does not, requests only wait in line. Where sessions begin
// at a rate of their own, nobody holds the concurrency, and there is no such figure.
func Little(r *Run) float64 {
	rate := Rate(r)
	if short(r) {
		rate = SessionRate(r)
	}
	var concurrency int
	for _, g := range r.Gens {
		concurrency += g.Concurrency
		if g.Offered > 0 {
			return none
		}
	}
	if !(rate > 0) {
		return none
	}
	return float64(concurrency) / rate * 1000
}

// Mean is the mean that Little stands beside, in milliseconds, weighted over generators.
func Mean(r *Run) float64 {
	var sum float64
	var count int64
	for _, g := range r.Gens {
		of := g.Message
		if short(r) {
			of = g.Session
		}
		sum += of.Mean * float64(of.Count)
		count += of.Count
	}
	if count == 0 || short(r) && brief(r) {
		return none
	}
	return sum / float64(count)
}

// short tells whether sessions have few messages, so that opening and closing them is part of the work.
func short(r *Run) bool {
	for _, g := range r.Gens {
		if g.PerSession > 0 && g.PerSession <= 10 {
			return true
		}
	}
	return false
}

// brief tells whether the measurement was too short for whole sessions: where fewer ended than were held open at once, it did
// not last as long as one takes; where they began at a rate, most were cut short.
func brief(r *Run) bool {
	for _, g := range r.Gens {
		if g.Offered == 0 && g.Completed < int64(g.Concurrency) || g.Cut > g.Completed {
			return true
		}
	}
	return false
}

// CPU is the CPU time of a group for each message accepted, in microseconds.
func CPU(group string) func(*Run) float64 {
	return func(r *Run) float64 {
		g, ok := groupOf(r, group)
		if n := accepted(r); ok && n > 0 {
			return g.CPU / float64(n) * 1e6
		}
		return none
	}
}

// PSS is the peak memory of a group in MiB.
func PSS(group string) func(*Run) float64 {
	return func(r *Run) float64 {
		if g, ok := groupOf(r, group); ok {
			return float64(g.PeakPSS) / (1 << 20)
		}
		return none
	}
}

func groupOf(r *Run, name string) (g machine.Group, ok bool) {
	if r.Usage != nil {
		g, ok = r.Usage.Groups[name]
	}
	return g, ok
}

// Value is a figure of one kind of case.
func Value(name string) func(*Run) float64 {
	return func(r *Run) float64 {
		if v, ok := r.Values[name]; ok {
			return v
		}
		return none
	}
}

// seconds is a figure that is zero where it was not measured.
func seconds(of func(*Run) float64) func(*Run) float64 {
	return func(r *Run) float64 {
		if v := of(r); v > 0 {
			return v
		}
		return none
	}
}

func accepted(r *Run) (n int64) {
	for _, g := range r.Gens {
		n += g.Accepted
	}
	return n
}

func distinct(r *Run) (n int64) {
	for _, s := range r.Sinks {
		n += s.Distinct
	}
	return n
}
