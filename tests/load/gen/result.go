package gen

import (
	"time"

	"github.com/rohrpost/rohrpost/tests/load/latency"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// Result is what came of a run. Counts are of the whole run, latencies and rate of the time after the warm-up.
type Result struct {
	Run         string `json:"run"`
	Target      string `json:"target"`
	Concurrency int    `json:"concurrency"` // sessions wanted at once
	PerSession  int    `json:"per_session"` // messages in each; 0 means kept sessions
	Peak        int64  `json:"peak"`        // sessions open at once at most

	Begin   time.Time `json:"begin"`   // start-up begins: sessions are opened
	First   time.Time `json:"first"`   // the first message
	Warm    time.Time `json:"warm"`    // the end of the warm-up
	Stop    time.Time `json:"stop"`    // the end of the sending where that had a time; zero otherwise
	Last    time.Time `json:"last"`    // the outcome of the last message; shutdown begins
	End     time.Time `json:"end"`     // the last session has ended
	Counted int64     `json:"counted"` // messages accepted from Warm to Stop, or to Last

	Sessions   int64            `json:"sessions"` // that were opened
	Messages   int64            `json:"messages"` // attempted
	Accepted   int64            `json:"accepted"`
	Refused    int64            `json:"refused"`
	Unknown    int64            `json:"unknown"`
	Failed     int64            `json:"failed"`
	Recipients int64            `json:"recipients"` // of accepted messages
	Octets     int64            `json:"octets"`     // of content accepted
	Errors     map[string]int64 `json:"errors"`     // what did not go as it must, by phase and kind
	Seconds    []int64          `json:"seconds"`    // accepted in each second since Begin

	Connect latency.Summary `json:"connect"` // until the session was ready for mail
	Message latency.Summary `json:"message"` // of accepted messages: from when it was to be sent until its last reply
	Ack     latency.Summary `json:"ack"`     // of accepted messages: from the last octet of content until its reply
	Session latency.Summary `json:"session"` // from when it was to be opened until it ended
}

// Rate is the number of messages accepted each second, from the end of the warm-up to the end of the sending or, where that is
// given by a number of messages, to the last outcome.
func (r *Result) Rate() float64 {
	until := r.Last
	if !r.Stop.IsZero() && r.Stop.Before(r.Last) {
		until = r.Stop
	}
	if took := until.Sub(r.Warm).Seconds(); took > 0 && !r.Warm.IsZero() {
		return float64(r.Counted) / took
	}
	return 0
}

// began notes the first message.
func (r *run) began() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result.First.IsZero() {
		r.result.First = time.Now()
		if r.measured {
			r.result.Warm = r.result.First
		}
	}
}

// opened notes a session that is ready for mail. It is true where the session's time counts.
func (r *run) opened(number int, took time.Duration) bool {
	if n := r.open.Load(); n > r.peak.Load() {
		r.peak.Store(n) // two at once may lose one of their counts: it is for people
	}
	r.mu.Lock()
	r.result.Sessions++
	measured := r.measured
	r.mu.Unlock()
	if measured {
		r.hist.connect.Record(number, took)
	}
	return measured
}

// ended books the outcome of the ith message.
func (r *run) ended(number int, i int64, t *transaction) {
	e := t.entry
	r.mu.Lock()
	res := &r.result
	res.Messages++
	res.Last = e.End
	measured := r.measured
	switch e.Outcome {
	case ledger.Accepted:
		res.Accepted++
		res.Recipients += int64(len(e.Recipients))
		res.Octets += int64(e.Size)
		second := int(e.End.Sub(r.begun) / time.Second)
		for len(res.Seconds) <= second {
			res.Seconds = append(res.Seconds, 0)
		}
		res.Seconds[second]++
		if measured && res.Stop.IsZero() {
			res.Counted++
		}
	case ledger.Refused:
		res.Refused++
	case ledger.Unknown:
		res.Unknown++
	case ledger.Failed:
		res.Failed++
	}
	if !r.measured && res.Messages >= r.cfg.WarmUp && e.End.Sub(res.First) >= r.cfg.WarmFor {
		r.measured, res.Warm = true, e.End
		close(r.warm)
	}
	r.mu.Unlock()
	if measured && i >= r.cfg.WarmUp && e.Outcome == ledger.Accepted {
		r.hist.message.Record(number, e.End.Sub(e.Start))
		r.hist.ack.Record(number, t.acked.Sub(t.sent))
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Errors[describe(err)]++
}

func (r *run) finish() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.result
	res.End, res.Peak = time.Now(), r.peak.Load()
	res.Connect, res.Message, res.Ack, res.Session = r.hist.connect.Summary(), r.hist.message.Summary(), r.hist.ack.Summary(), r.hist.session.Summary()
	return &res
}
