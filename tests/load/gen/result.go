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
	// Offered is how many sessions were to start each second, whatever became of those before; 0 where each began when another
	// had ended.
	Offered float64 `json:"offered,omitempty"`
	Peak    int64   `json:"peak"` // sessions open at once at most: from the server's greeting to the end

	Begin   time.Time `json:"begin"`   // start-up begins: sessions are opened
	First   time.Time `json:"first"`   // the first message
	Warm    time.Time `json:"warm"`    // the end of the warm-up
	Stop    time.Time `json:"stop"`    // the end of the sending where that had a time; zero otherwise
	Last    time.Time `json:"last"`    // the outcome of the last message; shutdown begins
	End     time.Time `json:"end"`     // the last session has ended
	Counted int64     `json:"counted"` // messages accepted from Warm to Stop, or to Last

	Sessions   int64            `json:"sessions"`  // that were opened, in the whole run
	Completed  int64            `json:"completed"` // that had sent all their messages, and ended from Warm to Stop, or to End
	Cut        int64            `json:"cut"`       // that the end of the sending, or of the connection, cut short after Warm
	Messages   int64            `json:"messages"`  // attempted, or given up
	Accepted   int64            `json:"accepted"`
	Refused    int64            `json:"refused"`
	Unknown    int64            `json:"unknown"`
	Failed     int64            `json:"failed"`     // the connection broke before the content was sent, or there was none
	Recipients int64            `json:"recipients"` // of accepted messages
	Octets     int64            `json:"octets"`     // of content accepted
	Errors     map[string]int64 `json:"errors"`     // what did not go as it must, by phase and kind
	Seconds    []int64          `json:"seconds"`    // accepted in each second since Begin
	// Doubtful are messages that may arrive though the server did not say that it took them, as [ledger.Pair] names them: the
	// first maxDoubtful of Doubts.
	Doubtful []string `json:"doubtful,omitempty"`
	Doubts   int64    `json:"doubts"`

	Connect latency.Summary `json:"connect"` // until the session was ready for mail
	Message latency.Summary `json:"message"` // of accepted messages: from when it was to be sent until its last reply
	Ack     latency.Summary `json:"ack"`     // of accepted messages: from the last octet of content until its reply
	Session latency.Summary `json:"session"` // of completed sessions: from when it was to be opened until it ended
}

// maxDoubtful bounds what a result carries.
const maxDoubtful = 10_000

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

// SessionRate is the number of sessions each second that ended with all their messages sent, from the end of the warm-up to the
// end of the sending or, where that is given by a number of messages, to the end of the last session.
func (r *Result) SessionRate() float64 {
	until := r.End
	if !r.Stop.IsZero() && r.Stop.Before(r.End) {
		until = r.Stop
	}
	if took := until.Sub(r.Warm).Seconds(); took > 0 && !r.Warm.IsZero() {
		return float64(r.Completed) / took
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

// greeted notes a session that the server has greeted, and so holds open.
func (r *run) greeted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peak = max(r.peak, r.open.Add(1))
}

// opened notes a session that is ready for mail.
func (r *run) opened(number int, took time.Duration) {
	r.mu.Lock()
	r.result.Sessions++
	measured := r.measured
	r.mu.Unlock()
	if measured {
		r.hist.connect.Record(number, took)
	}
}

// closed notes the end of a session that had so many messages, and whether it was cut short. Its time counts where it ended by
// itself while the time was measured, whenever it began: whoever counted those that began then only would miss the long ones.
func (r *run) closed(number int, sent int64, cut bool, took time.Duration) {
	r.mu.Lock()
	full := r.cfg.PerSession == 0 || sent == int64(r.cfg.PerSession)
	completed := full && !cut && r.measured && r.result.Stop.IsZero()
	switch {
	case completed:
		r.result.Completed++
	case cut && r.measured:
		r.result.Cut++
	}
	r.mu.Unlock()
	if completed {
		r.hist.session.Record(number, took)
	}
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
	r.doubt(e)
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

// doubt notes for whom a message might arrive that the server is not known to have taken; the lock is held.
func (r *run) doubt(e *ledger.Entry) {
	may := e.Doubtful()
	r.result.Doubts += int64(len(may))
	for _, recipient := range may {
		if len(r.result.Doubtful) < maxDoubtful {
			r.result.Doubtful = append(r.result.Doubtful, ledger.Pair(e.ID, recipient))
		}
	}
}

// failed counts messages that no session was there for.
func (r *run) failed(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Messages += n
	r.result.Failed += n
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
	res.End, res.Peak = time.Now(), r.peak
	res.Connect, res.Message, res.Ack, res.Session = r.hist.connect.Summary(), r.hist.message.Summary(), r.hist.ack.Summary(), r.hist.session.Summary()
	return &res
}
