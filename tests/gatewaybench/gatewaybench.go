// Package gatewaybench measures the gateway: ten thousand sessions at once, what a session costs beside the bare SMTP library, large
// messages, TLS, and how long its replies take while the parsers are flooded. The gateway is the program as built, before a spool
// that keeps nothing; who sends is this process. See docs/performance.md.
package gatewaybench

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// Options say how it is measured.
type Options struct {
	bench.Options
	// TLS is mutual TLS between the processes, as separate services have it. Else gRPC goes in clear text over loopback.
	TLS bool
	// Measure is how long a rate is measured.
	Measure time.Duration
	// Sessions are open at once in the study's workload.
	Sessions int
}

// Run measures all cases in rounds.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	return bench.Scenarios(ctx, o.Options, o.scenarios())
}

// The group and the names of cases.
const (
	group        = "gateway"
	caseStudy    = "study"
	caseStudyTLS = "study with STARTTLS"
	caseKept     = "ten messages a connection"
	caseLarge    = "large messages"
	caseTLS      = "STARTTLS sessions"
	caseApart    = "bombs, parsers apart"
	caseUp       = "bombs, up"
)

// scenarios lists the cases in the order of a round. What is compared is measured within one case, one after the other.
func (o *Options) scenarios() []bench.Scenario {
	const start = 2 * time.Second // of servers, and their end
	study := time.Duration(o.Sessions) * 400 * time.Microsecond
	all := []bench.Scenario{
		{Name: caseStudy, Takes: 2 * (2*start + 4*study), Measure: o.study(false)},
		{Name: caseStudyTLS, Takes: 2 * (start + 2*study), Measure: o.study(true)},
		{Name: caseKept, Takes: 2 * (start + o.Measure*3/2), Measure: o.kept},
		{Name: caseLarge, Takes: 2*start + 3*o.Measure, Measure: o.large},
		{Name: caseTLS, Takes: 3*start + 4*o.Measure, Measure: o.handshakes},
		{Name: caseApart, Takes: 3*start + 2*o.Measure, Measure: o.bombs(false)},
		{Name: caseUp, Takes: 3*start + 2*o.Measure, Measure: o.bombs(true)},
	}
	for i := range all {
		all[i].Group = group
	}
	return all
}
