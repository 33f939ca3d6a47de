package spool

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// Config is the spool's section of the configuration.
type Config struct {
	// Memory bounds what messages take in memory, envelopes and parse results included. Past it messages wait in the
	// database. From 1 MiB. Beside it, content of messages from 128 KiB to 2 MiB takes up to a quarter of it, at most 64 MiB,
	// until they have been sent, so that workers need not wait for the database. Where that is full, such a message is taken
	// more slowly: it waits up to 2 s, but only while others leave.
	Memory bytesize.Size `yaml:"memory"`
	// Messages bounds the number of messages in memory. From 1.
	Messages int `yaml:"messages"`
	// Backlog bounds the content of messages that are not durable yet. Past it clients get 451. From 1 MiB.
	Backlog bytesize.Size `yaml:"backlog"`

	// MaxWaiting is how many waiting rows (a message and a destination each) there may be in the database. Past it clients get
	// 452 until there are fewer. 0 for no bound.
	MaxWaiting int `yaml:"max_waiting"`
	// MaxDatabase is how large the database may be. Past it clients get 452 until it is smaller, so set it below what its
	// disk holds: mail that was accepted needs room to end. 0 for no bound.
	MaxDatabase bytesize.Size `yaml:"max_database"`

	// VerdictWait is how long a client may wait for its message to be judged before the message is made durable, so that a
	// refusal reaches the client. Where verdicts are expected to take longer, messages are judged after they were accepted.
	// 0 to 5m; 0 judges all after. It must fit into what the gateway allows for a reply, gateway.timeouts.submit.
	VerdictWait time.Duration `yaml:"verdict_wait"`

	// CommitsInFlight is how many transactions may run at a time, 1 to 16.
	CommitsInFlight int `yaml:"commits_in_flight"`
	// BatchRows bounds the rows of a transaction, from 1.
	BatchRows int `yaml:"batch_rows"`
	// BatchSize bounds the octets of a transaction, from 256 KiB.
	BatchSize bytesize.Size `yaml:"batch_size"`

	// Lease is how long the spool may act without renewing its incarnation, and so how long its messages wait when its
	// process dies. From 1 s.
	Lease time.Duration `yaml:"lease"`
	// Tick is how often the database is asked for messages that are due, 10 ms to 10 s. Those that will be due within the next
	// two ticks are loaded as well and wait in memory, so that each goes out at its time.
	Tick time.Duration `yaml:"tick"`
	// DrainTimeout is how long a spool that stops waits for permitted jobs.
	DrainTimeout time.Duration `yaml:"drain_timeout"`

	// JobLease is how long a worker may be silent about a job, longer than ReturnGrace.
	JobLease time.Duration `yaml:"job_lease"`
	// ReturnGrace is how long a lost worker has to present the results of permitted jobs on a new stream.
	ReturnGrace time.Duration `yaml:"return_grace"`
	// AgainFor is how long results of another incarnation's jobs are told to come again, longer than Lease.
	AgainFor time.Duration `yaml:"again_for"`
	// JobTries is how often a parse or filter job is given out when workers fail, from 1.
	JobTries int `yaml:"job_tries"`
	// PerDestination bounds the deliver jobs for one destination at a time, from 1. Each spool counts for itself.
	PerDestination int `yaml:"per_destination"`
	// Destinations set another bound for some destinations: the first whose pattern names it counts.
	Destinations []DestinationLimit `yaml:"destinations"`

	// BackOff lists the waits before the second attempt, the third, and so on; the last one repeats.
	BackOff []time.Duration `yaml:"back_off"`
	// Jitter is the part of a wait by which it is made longer or shorter at random, 0 to 0.9.
	Jitter float64 `yaml:"jitter"`
	// UnknownDelay is the wait before the next attempt after one whose outcome is not known.
	UnknownDelay time.Duration `yaml:"unknown_delay"`
	// MaxAge is when the recipients of a message end that could not be delivered, counted from its acceptance.
	MaxAge time.Duration `yaml:"max_age"`
	// HoldMaxAge is when held recipients end, counted from the message's acceptance.
	HoldMaxAge time.Duration `yaml:"hold_max_age"`

	// KeepContent is how long messages are kept with their content, counted from the end of the day (UTC) on which they
	// were accepted. What has not ended stays until it has. From 1d, or 0 for ever.
	KeepContent time.Duration `yaml:"keep_content"`
	// KeepJournal is how long attempts, outcomes and journals are kept: not less than KeepContent, and longer than a message
	// can live, by max_age and hold_max_age. 0 for ever.
	KeepJournal time.Duration `yaml:"keep_journal"`
	// KeepSize is how much all days may take in the database. Past it the oldest day's messages that have ended go before
	// keep_content, but never today's. 0 for no bound.
	KeepSize bytesize.Size `yaml:"keep_size"`

	// DuplicateWindow is how long a message with the same envelope and content is suspected to be a duplicate.
	DuplicateWindow time.Duration `yaml:"duplicate_window"`
	// TraceWindow is how long after its acceptance a message's attempts join its trace; later ones are linked to it.
	TraceWindow time.Duration `yaml:"trace_window"`
}

// DestinationLimit bounds the deliver jobs for each of some destinations, by number, by rate, or both. Each spool counts for
// itself.
type DestinationLimit struct {
	// Match are patterns of destinations: the domains of recipients.
	Match []pattern.Pattern `yaml:"match"`
	// Jobs is how many may be out at a time for one of them, from 1; 0 for per_destination.
	Jobs int `yaml:"jobs"`
	// Every is the least time from the start of one job to that of the next, up to 1h: 500ms for two messages a second. 0
	// for no such limit.
	Every time.Duration `yaml:"every"`
}

// limitsFor is how many deliver jobs for a destination may be out at a time, and the least time between two.
func (c *Config) limitsFor(destination string) (jobs int, every time.Duration) {
	for _, limit := range c.Destinations {
		for _, p := range limit.Match {
			if p.Match(destination) {
				return cmp.Or(limit.Jobs, c.PerDestination), limit.Every
			}
		}
	}
	return c.PerDestination, 0
}

// claimsFor is how many messages for one destination are claimed at a time.
func (c *Config) claimsFor() int { return 2 * c.PerDestination }

// DefaultConfig is what holds where nothing is configured.
func DefaultConfig() Config {
	return Config{
		Memory: 192 * bytesize.MiB, Messages: 50_000, Backlog: 64 * bytesize.MiB,
		VerdictWait:     5 * time.Second,
		CommitsInFlight: 2, BatchRows: 512, BatchSize: 4 * bytesize.MiB,
		Lease: 10 * time.Second, Tick: 200 * time.Millisecond, DrainTimeout: 20 * time.Second,
		JobLease: time.Minute, ReturnGrace: 15 * time.Second, AgainFor: time.Minute, JobTries: 3, PerDestination: 20,
		BackOff: []time.Duration{
			time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
		},
		Jitter: 0.2, UnknownDelay: time.Minute, MaxAge: 5 * 24 * time.Hour, HoldMaxAge: 7 * 24 * time.Hour,
		KeepContent: 7 * 24 * time.Hour, KeepJournal: 30 * 24 * time.Hour,
		DuplicateWindow: 10 * time.Minute, TraceWindow: 15 * time.Minute,
	}
}

// lookAhead is how long before it is due a message that waits is loaded, or kept: longer than from one claim to the next.
func (c *Config) lookAhead() time.Duration { return 2 * c.Tick }

const day = 24 * time.Hour

// longestLife bounds how long a message may be on its way: until it is released or its hold ends, then until its age is over,
// and what notifications take after that.
func (c Config) longestLife() time.Duration { return c.HoldMaxAge + c.MaxAge + 2*day }

// StopTimeout is how long a spool that is told to stop may take: it waits for permitted jobs, then hands over.
func (c Config) StopTimeout() time.Duration { return c.DrainTimeout + c.Lease + 5*time.Second }

// Validate names the first key that can't be and how to mend it.
func (c Config) Validate() error {
	for _, r := range []struct {
		key  string
		ok   bool
		mend string
	}{
		{"memory", c.Memory >= bytesize.MiB, "set at least 1MiB"},
		{"messages", c.Messages >= 1, "set at least 1"},
		{"backlog", c.Backlog >= bytesize.MiB, "set at least 1MiB"},
		{"max_waiting", c.MaxWaiting >= 0, "set 0 or more"},
		{"max_database", c.MaxDatabase >= 0, "set a size, or 0 for no bound"},
		{"verdict_wait", c.VerdictWait >= 0 && c.VerdictWait <= 5*time.Minute, "set 0s to 5m"},
		{"commits_in_flight", c.CommitsInFlight >= 1 && c.CommitsInFlight <= 16, "set 1 to 16"},
		{"batch_rows", c.BatchRows >= 1, "set at least 1"},
		{"batch_size", c.BatchSize >= 256*bytesize.KiB, "set at least 256KiB"},
		{"lease", c.Lease >= time.Second, "set at least 1s"},
		{"tick", c.Tick >= 10*time.Millisecond && c.Tick <= 10*time.Second, "set 10ms to 10s"},
		{"drain_timeout", c.DrainTimeout >= 0, "set 0s or more"},
		{"return_grace", c.ReturnGrace >= 0 && c.ReturnGrace < c.JobLease, "set less than job_lease"},
		{"job_lease", c.JobLease >= time.Second, "set at least 1s"},
		{"again_for", c.AgainFor > c.Lease, "set more than lease"},
		{"job_tries", c.JobTries >= 1, "set at least 1"},
		{"per_destination", c.PerDestination >= 1, "set at least 1"},
		{"back_off", len(c.BackOff) > 0, "list at least one wait, such as [1m, 5m, 1h]"},
		{"jitter", c.Jitter >= 0 && c.Jitter <= 0.9, "set 0 to 0.9"},
		{"unknown_delay", c.UnknownDelay > 0, "set more than 0s"},
		{"max_age", c.MaxAge >= time.Minute, "set at least 1m"},
		{"hold_max_age", c.HoldMaxAge >= time.Minute, "set at least 1m"},
		{"keep_content", c.KeepContent == 0 || c.KeepContent >= day, "set at least 1d, or 0s for ever"},
		{"keep_journal", c.KeepJournal == 0 || c.KeepJournal >= c.KeepContent && c.KeepContent > 0, "set at least keep_content, or 0s for ever"},
		{"keep_journal", c.KeepJournal == 0 || c.KeepJournal >= c.longestLife(), "set more than max_age and hold_max_age together, by two days at least"},
		{"keep_size", c.KeepSize >= 0, "set a size, or 0 for no bound"},
		{"duplicate_window", c.DuplicateWindow >= 0, "set 0s or more"},
		{"trace_window", c.TraceWindow >= 0, "set 0s or more"},
	} {
		if !r.ok {
			return fmt.Errorf("%s: %s", r.key, r.mend)
		}
	}
	for i, limit := range c.Destinations {
		if len(limit.Match) == 0 || limit.Jobs < 0 || limit.Jobs == 0 && limit.Every == 0 {
			return fmt.Errorf("destinations: limit %d: give match, a list of patterns, and jobs (from 1), every (such as 500ms), or both", i+1)
		}
		if limit.Every < 0 || limit.Every > time.Hour {
			return fmt.Errorf("destinations: limit %d: every is %s: set 0s to 1h", i+1, limit.Every)
		}
	}
	for i, wait := range c.BackOff {
		if wait <= 0 || wait >= c.MaxAge {
			return fmt.Errorf("back_off: wait %d is %s: set more than 0s and less than max_age (%s)", i+1, wait, c.MaxAge)
		}
	}
	return nil
}
