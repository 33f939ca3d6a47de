//go:build linux

package chaos

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/services/rohrtest"
	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
)

// quiet is how many mails are sent at each gateway when all is healed, to see whole traces.
const quiet = 10

// judgeTraces sends a few mails while nothing breaks, and sees that each has one whole trace.
func (r *run) judgeTraces(ctx context.Context) error {
	since := time.Now()
	sending, stop := context.WithTimeout(ctx, 30*time.Second)
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
		if e.Outcome == ledger.Accepted && e.Start.After(since) {
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
		r.report.Findings = append(r.report.Findings, judge.Finding{
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

// maxConnections is more than the pools of two spools may have, nine each. What leaks shows by dozens.
const maxConnections = 24

// judgeConnections sees that PostgreSQL has no connections left of spools that are gone.
func (r *run) judgeConnections(ctx context.Context) error {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var total int
	var dead []string
	for deadline := time.Now().Add(20 * time.Second); ; pause(ctx, 300*time.Millisecond) {
		if total, dead, err = judge.Clients(ctx, conn); err != nil {
			return err
		}
		if total <= maxConnections && len(dead) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			r.report.broken("PostgreSQL has %d connections, two spools should have no more than %d; of dead incarnations: %v", total, maxConnections, dead)
			return nil
		}
	}
}

// orphanAge is more than the age at which content without a message is swept.
const orphanAge = "5 hours"

// judgeOrphans sees that content of which no message came is swept. Since that happens when nobody can send the rest any
// more, the orphans are made older first, and the spools are started anew, as they sweep then. A message's own chunks stay,
// or it would be found not to be whole.
func (r *run) judgeOrphans(ctx context.Context) error {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	aged, err := judge.AgeOrphans(ctx, conn, orphanAge)
	if err != nil || aged == 0 {
		return err
	}
	for _, p := range r.cluster.Services() {
		if p.Word == "spool" {
			if err := p.Stop(); err != nil {
				r.report.broken("%v", err)
			}
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; pause(ctx, 300*time.Millisecond) {
		left, err := judge.Orphans(ctx, conn)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			r.report.broken("%d of %d chunks of content without a message are left %s after they became old", left, aged, "30 s")
			return nil
		}
	}
}

// mayHave is how many goroutines of one origin a service may have that has n of them just after its start: the connections
// between services come and go.
func mayHave(n int) int { return 2*n + 16 }

// judgeProcesses compares the goroutines of each service with those of the same service just started, and looks for
// crashes in its log.
func (r *run) judgeProcesses(ctx context.Context) error {
	used, err := r.dumps()
	if err != nil {
		return err
	}
	for _, p := range r.cluster.Services() {
		if err := p.Start(); err != nil {
			return err
		}
	}
	if err := r.waitUp(ctx); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	pause(ctx, 2*time.Second) // what was started for those mails ends
	fresh, err := r.dumps()
	if err != nil {
		return err
	}
	for _, p := range r.cluster.Services() {
		for origin, n := range used[p.Name] {
			if now := fresh[p.Name][origin]; n > mayHave(now) {
				r.report.broken("%s has %d goroutines created by %s; just started it has %d", p.Name, n, origin, now)
			}
		}
		r.judgeLog(p)
	}
	return nil
}

// dumps ends all services at once, so that none sees another go, and counts their goroutines by who created them.
func (r *run) dumps() (map[string]map[string]int, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	all := map[string]map[string]int{}
	for _, p := range r.cluster.Services() {
		wg.Go(func() {
			text, err := p.Dump()
			mu.Lock()
			defer mu.Unlock()
			all[p.Name] = countGoroutines(text)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

var createdBy = regexp.MustCompile(`(?m)^created by ([^\n]+?)(?: in goroutine \d+)?$`)

// countGoroutines counts the goroutines of a dump by the function that created them.
func countGoroutines(dump string) map[string]int {
	counts := map[string]int{}
	for _, m := range createdBy.FindAllStringSubmatch(dump, -1) {
		counts[m[1]]++
	}
	return counts
}

// crash matches what a Go program says when it ends badly. SIGQUIT, by which goroutines are told, is no crash.
var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |WARNING: DATA RACE|runtime: out of memory).*$`)

func (r *run) judgeLog(p *cluster.Process) {
	text, err := p.Log()
	if err != nil {
		r.report.broken("%v", err)
		return
	}
	if at := crash.FindStringIndex(text); at != nil {
		lines := strings.SplitN(text[at[0]:], "\n", 30)
		r.report.broken("%s crashed:\n%s", p.Name, strings.Join(lines[:len(lines)-1], "\n"))
	}
}
