// Package latency records how long things take in histograms that lose less than 0.1 % of a value, and that can be merged
// after they have travelled as JSON.
package latency

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	unit    = time.Microsecond
	highest = time.Hour // what takes longer is recorded as that
	shards  = 4
)

// Recorder records times. It may be used by many at once.
type Recorder struct {
	shards [shards]shard
}

type shard struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(highest/unit), 3) }

// Record records a time on behalf of a worker; those of different workers seldom wait for each other.
func (r *Recorder) Record(worker int, d time.Duration) {
	s := &r.shards[worker%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hist == nil {
		s.hist = newHistogram()
	}
	_ = s.hist.RecordValue(int64(min(max(d, 0), highest) / unit)) // within its bounds
}

// Summary returns what was recorded so far.
func (r *Recorder) Summary() Summary {
	all := newHistogram()
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		if s.hist != nil {
			all.Merge(s.hist)
		}
		s.mu.Unlock()
	}
	return summarize(all)
}

// Summary is a distribution of times, in milliseconds.
type Summary struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	Min   float64 `json:"min_ms"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
	HDR   []byte  `json:"hdr,omitempty"` // the histogram in HdrHistogram's V2 compressed form, in microseconds
}

func summarize(h *hdrhistogram.Histogram) Summary {
	s := Summary{Count: h.TotalCount()}
	if s.Count == 0 {
		return s
	}
	ms := func(v float64) float64 { return v * float64(unit) / float64(time.Millisecond) }
	s.Mean, s.Min, s.Max = ms(h.Mean()), ms(float64(h.Min())), ms(float64(h.Max()))
	s.P50 = ms(float64(h.ValueAtPercentile(50)))
	s.P95 = ms(float64(h.ValueAtPercentile(95)))
	s.P99 = ms(float64(h.ValueAtPercentile(99)))
	if hdr, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase); err == nil {
		s.HDR = hdr
	}
	return s
}

// decode reads a histogram. The library trusts the lengths in it.
func decode(hdr []byte) (h *hdrhistogram.Histogram, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is cut short or altered: %v", p)
		}
	}()
	return hdrhistogram.Decode(hdr)
}

// Merge returns the distribution of all times of several.
func Merge(summaries ...Summary) (Summary, error) {
	all := newHistogram()
	for _, s := range summaries {
		if s.Count == 0 {
			continue
		}
		h, err := decode(s.HDR)
		if err != nil {
			return Summary{}, fmt.Errorf("reading a histogram: %w", err)
		}
		all.Merge(h)
	}
	return summarize(all), nil
}
