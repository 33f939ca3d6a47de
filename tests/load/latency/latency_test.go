package latency

import (
	"encoding/json"
	"math"
	"sync"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	var r Recorder
	var wg sync.WaitGroup
	for w := range 10 { // 1 to 1000 ms, each once
		wg.Go(func() {
			for i := range 100 {
				r.Record(w, time.Duration(w*100+i+1)*time.Millisecond)
			}
		})
	}
	wg.Wait()
	got := r.Summary()
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"count", float64(got.Count), 1000},
		{"mean", got.Mean, 500.5},
		{"min", got.Min, 1},
		{"p50", got.P50, 500},
		{"p95", got.P95, 950},
		{"p99", got.P99, 990},
		{"max", got.Max, 1000},
	} {
		if math.Abs(c.got-c.want) > c.want/500 {
			t.Errorf("%s is %g, want %g", c.name, c.got, c.want)
		}
	}
}

func TestMergeAfterJSON(t *testing.T) {
	var a, b, both Recorder
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.Record(i, d)
		if i%3 == 0 {
			a.Record(i, d)
		} else {
			b.Record(i, d)
		}
	}
	travel := func(s Summary) Summary {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var out Summary
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got, err := Merge(travel(a.Summary()), Summary{}, travel(b.Summary()))
	if err != nil {
		t.Fatal(err)
	}
	want := both.Summary()
	got.HDR, want.HDR = nil, nil
	if got.Count != want.Count || got.P99 != want.P99 || got.Max != want.Max || math.Abs(got.Mean-want.Mean) > 0.01 {
		t.Errorf("merged %+v, want %+v", got, want)
	}
	for _, hdr := range []string{"", "x", "SElTVA==", string(a.Summary().HDR[:12])} {
		if _, err := Merge(Summary{Count: 1, HDR: []byte(hdr)}); err == nil {
			t.Errorf("%q is no error", hdr)
		}
	}
}

func TestOutOfBounds(t *testing.T) {
	var r Recorder
	r.Record(0, -time.Second)
	r.Record(0, 100*time.Hour)
	if got := r.Summary(); got.Count != 2 || got.Min != 0 || got.Max < 3.5e6 {
		t.Errorf("%+v", got)
	}
	if got := (&Recorder{}).Summary(); got.Count != 0 || got.P99 != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}
