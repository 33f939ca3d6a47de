//go:build compose

package compose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// BenchmarkParserScaling measures how fast 1, 2 and 4 parsers of a quarter of a core each read heavy mail, and meanwhile how
// long a gateway takes for the 250 of a small one. `make compose-scaling` runs it; on an idle machine of two cores or more.
func BenchmarkParserScaling(b *testing.B) {
	gateways := []string{pipeline.address("gateway")}
	// Deliver and the next hop take nothing from the parsers.
	restore := pipeline.with("PARSER_CPUS=0.25", `ROHRPOST_DELIVER_ROUTES=[{match: ["*"], via: discard}]`)
	defer func() { restore(); pipeline.do(b, "up", "-d", "--wait") }()
	pipeline.do(b, "up", "-d", "--wait")

	var table strings.Builder
	fmt.Fprintf(&table, "%8s %10s %7s %22s %22s\n", "parsers", "parsed/s", "ratio", "RCPT after: p50, p95", "250 after: p50, p95")
	var alone float64
	for _, parsers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("parsers=%d", parsers), func(b *testing.B) {
			pipeline.do(b, "stop", "parser")
			ids := sendMany(b, fmt.Sprintf("scaling-%d", parsers), gateways, 100*parsers, heavy)
			pipeline.do(b, "up", "-d", "--wait", "--scale", fmt.Sprintf("parser=%d", parsers))
			stop := probe(gateways[0])
			entries := parsed(b, ids)
			envelopes, mails := stop()
			rate := parseRate(entries)
			if alone == 0 {
				alone = rate
			}
			b.ReportMetric(rate, "parsed/s")
			fmt.Fprintf(&table, "%8d %10.1f %6.2fx %22s %22s\n", parsers, rate, rate/alone, middle(envelopes), middle(mails))
		})
	}
	b.Log("\n" + table.String())
}

// parseRate is how many mails were parsed in a second, over the middle of the run: the parsers start one after another, and
// at the end some have nothing to do.
func parseRate(entries []*mailv1.JournalEntry) float64 {
	var times []time.Time
	for _, e := range entries {
		times = append(times, e.GetTime().AsTime())
	}
	slices.SortFunc(times, time.Time.Compare)
	from, to := len(times)/5, len(times)*4/5
	return float64(to-from) / times[to].Sub(times[from]).Seconds()
}

// probe sends small mails, twenty a second at most, until the returned function is called; that tells how long the gateway
// took, from the connection to the reply to RCPT, which is its own work, and to the 250, which is the spool's too.
func probe(gateway string) (stop func() (envelopes, mails []time.Duration)) {
	var envelopes, mails []time.Duration
	halt := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-halt:
				return
			case <-ticker.C:
			}
			start := time.Now()
			if err := envelope(gateway); err == nil {
				envelopes = append(envelopes, time.Since(start))
			}
			start = time.Now()
			if _, err := send(gateway, "probe"); err == nil {
				mails = append(mails, time.Since(start))
			}
		}
	})
	return func() ([]time.Duration, []time.Duration) {
		close(halt)
		done.Wait()
		return envelopes, mails
	}
}

// envelope goes as far as RCPT.
func envelope(gateway string) error {
	c, err := open(gateway)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is lost
	return errors.Join(c.Mail("ann@a.example"), c.Rcpt("bob@b.example"))
}

// middle tells the median and the 95th percentile.
func middle(latencies []time.Duration) string {
	slices.Sort(latencies)
	at := func(p int) time.Duration { return percentile(latencies, p).Round(10 * time.Microsecond) }
	return fmt.Sprint(at(50), ", ", at(95))
}

// percentile of sorted durations; 0 where there are none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
