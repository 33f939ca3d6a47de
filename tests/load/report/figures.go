package report

// Rate is the number of messages accepted each second: of all generators together.
func Rate(r *Run) float64 {
	var sum float64
	for _, g := range r.Gens {
		sum += g.Rate()
	}
	return sum
}

// WholeRate is the number of messages each second that went the whole way to the sink.
func WholeRate(r *Run) float64 {
	if r.Whole <= 0 {
		return 0
	}
	var accepted int64
	for _, g := range r.Gens {
		accepted += g.Accepted
	}
	return float64(accepted) / r.Whole
}

// SessionRate is the number of sessions each second.
func SessionRate(r *Run) float64 {
	var rate float64
	for _, g := range r.Gens {
		if g.Messages > 0 {
			rate += g.Rate() * float64(g.Sessions) / float64(g.Messages)
		}
	}
	return rate
}

// Little is concurrency ÷ throughput in milliseconds: the mean time in the system that follows from Little's law, of a session
// where each has few messages, else of a message. Where the mean that was measured lies far below, the generator held
// sessions back; where both rise with the concurrency and the rate does not, requests only wait in line.
func Little(r *Run) float64 {
	rate := Rate(r)
	if short(r) {
		rate = SessionRate(r)
	}
	if rate <= 0 {
		return 0
	}
	var concurrency int
	for _, g := range r.Gens {
		concurrency += g.Concurrency
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
	if count == 0 {
		return 0
	}
	return sum / float64(count)
}

// short tells whether sessions have few messages, so that opening and closing them is part of the work.
func short(r *Run) bool {
	for _, g := range r.Gens {
		if g.PerSession > 0 && g.PerSession <= 10 && g.Session.Count > 0 {
			return true
		}
	}
	return false
}

// CPU is the CPU time of a group for each message accepted, in microseconds.
func CPU(group string) func(*Run) float64 {
	return func(r *Run) float64 {
		var accepted int64
		for _, g := range r.Gens {
			accepted += g.Accepted
		}
		if r.Usage == nil || accepted == 0 {
			return 0
		}
		return r.Usage.Groups[group].CPU / float64(accepted) * 1e6
	}
}

// PSS is the peak memory of a group in MiB.
func PSS(group string) func(*Run) float64 {
	return func(r *Run) float64 {
		if r.Usage == nil {
			return 0
		}
		return float64(r.Usage.Groups[group].PeakPSS) / (1 << 20)
	}
}

// Value is a figure of one kind of case.
func Value(name string) func(*Run) float64 {
	return func(r *Run) float64 { return r.Values[name] }
}

// errorsOf sums up what did not go as it must.
func errorsOf(r *Run) int64 {
	var sum int64
	for _, g := range r.Gens {
		for _, n := range g.Errors {
			sum += n
		}
	}
	return sum
}

// Lost is how many messages were accepted and did not arrive, for runs that have both ends, and how many arrived twice or
// broken. In a run that failed, as for want of time, nobody knows.
func Lost(r *Run) (missing, twice, broken int64) {
	if r.Failed != "" || len(r.Gens) == 0 || len(r.Sinks) == 0 {
		return 0, 0, 0
	}
	for _, g := range r.Gens {
		missing += g.Recipients
	}
	for _, s := range r.Sinks {
		missing -= s.Distinct
		twice += s.Duplicates
		for _, n := range s.Faults {
			broken += n
		}
	}
	return max(0, missing), twice, broken
}
