//go:build linux

package chaos

import (
	"context"
	"time"

	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// quiet is how many mails are sent at each gateway when all is healed, to see whole traces.
const quiet = 10

// judgeTraces sends a few mails while nothing breaks, and sees that each has one whole trace.
func (r *run) judgeTraces(ctx context.Context) error {
	r.calm = time.Now()
	sending, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := r.traffic.some(sending, quiet); err != nil {
		r.report.broken("all is healed, but mail is not taken: %v", err)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	traces, err := r.traceIDs(ctx)
	if err != nil {
		return err
	}
	entries, err := ledger.Read[ledger.Entry](r.sent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Outcome == ledger.Accepted && e.Start.After(r.calm) {
			r.judgeTrace(ctx, e, traces[e.MessageID])
		}
	}
	return nil
}

// traceIDs reads the trace of every message.
func (r *run) traceIDs(ctx context.Context) (map[string]string, error) {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SELECT id::text, substr(traceparent, 4, 32) FROM message")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	traces := map[string]string{}
	for rows.Next() {
		var id, trace string
		if err := rows.Scan(&id, &trace); err != nil {
			return nil, err
		}
		traces[id] = trace
	}
	return traces, rows.Err()
}

// spanNames are the steps that every mail takes.
var spanNames = []string{
	"smtp.transaction", "spool.submit", "spool.accept", "parser.job", "filter.job", "deliver.job", "deliver.attempt", "spool.outcome",
}

func (r *run) judgeTrace(ctx context.Context, e ledger.Entry, trace string) {
	var why string
	var spans []rohrtest.Span
	for deadline := time.Now().Add(tracePatience); ; pause(ctx, 100*time.Millisecond) {
		spans = r.spans.Trace(trace)
		if why = incomplete(spans); why == "" || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
	}
	if why != "" {
		r.report.find(judge.Finding{
			Rule: judge.Machine, Message: e.MessageID, Text: "its trace " + trace + " is not whole, though nothing was broken: " + why + "\n" + rohrtest.Tree(spans),
		})
	}
}

// incomplete tells what a trace lacks.
func incomplete(spans []rohrtest.Span) string {
	ids, names := map[string]bool{}, map[string]bool{}
	for _, s := range spans {
		ids[s.SpanID], names[s.Name] = true, true
	}
	for _, name := range spanNames {
		if !names[name] {
			return "no span " + name
		}
	}
	for _, s := range spans {
		if s.ParentID != "" && !ids[s.ParentID] {
			return s.Name + " has no parent"
		}
	}
	return ""
}
