//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/cluster"
	"github.com/rohrpost/rohrpost/tests/chaos/judge"
)

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

// moreFiles is how many more files, sockets and pipes a service may have open after the faults than before: its pools grow
// with the load.
const moreFiles = 24

// openFiles counts what each service has open, by kind.
func (r *run) openFiles() (map[string]map[string]int, error) {
	all := map[string]map[string]int{}
	for _, p := range r.cluster.Services() {
		var err error
		if all[p.Name], err = p.Files(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// filePatience is how long connections may be left of which the other end is gone: a reset that was lost on a cut link is
// noticed by keep-alives only.
const filePatience = time.Minute

// judgeFiles sees that no service has kept files or connections open.
func (r *run) judgeFiles(ctx context.Context) error {
	for deadline := time.Now().Add(filePatience); ; pause(ctx, 500*time.Millisecond) {
		now, err := r.openFiles()
		if err != nil {
			return err
		}
		leaks := leaked(r.files, now)
		if len(leaks) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			for _, leak := range leaks {
				r.report.broken("%s", leak)
			}
			return nil
		}
	}
}

// leaked tells which services have too much open.
func leaked(before, now map[string]map[string]int) (leaks []string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		for _, kind := range slices.Sorted(maps.Keys(now[name])) {
			if is, was := now[name][kind], before[name][kind]; is > was+moreFiles {
				leaks = append(leaks, fmt.Sprintf("%s has %d files open of the kind %s; before the faults it had %d", name, is, kind, was))
			}
		}
	}
	return leaks
}

// orphanAge is more than the age at which content without a message is swept.
const orphanAge = "5 hours"

// ageOrphans makes content of which no message came so old that spools which start sweep it, and returns how much there is:
// nobody can send the rest any more. A message's own chunks stay, or it would be found not to be whole.
func (r *run) ageOrphans(ctx context.Context) (int64, error) {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return judge.AgeOrphans(ctx, conn, orphanAge)
}

// judgeOrphans sees that the spools, which have been started anew, have swept what was made old.
func (r *run) judgeOrphans(ctx context.Context, aged int64) error {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for deadline := time.Now().Add(orphanPatience); ; pause(ctx, 300*time.Millisecond) {
		left, err := judge.Orphans(ctx, conn)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			r.report.broken("%d of %d chunks of content without a message are left %s after spools started", left, aged, orphanPatience)
			return nil
		}
	}
}

// orphanPatience is how long a spool that starts may take to sweep.
const orphanPatience = time.Minute

// judgeProcesses compares the goroutines of each service, as it has come through the faults, with those of the same service
// just started. In between it lets the spools sweep, which they do when they start.
func (r *run) judgeProcesses(ctx context.Context) error {
	used, err := r.dumps()
	if err != nil {
		return err
	}
	aged, err := r.ageOrphans(ctx)
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
	if err := r.judgeOrphans(ctx, aged); err != nil {
		return err
	}
	pause(ctx, 2*time.Second) // what was started for those mails ends
	fresh, err := r.dumps()
	if err != nil {
		return err
	}
	for _, p := range r.cluster.Services() {
		for _, leak := range leakedGoroutines(used[p.Name], fresh[p.Name]) {
			r.report.broken("%s has %s", p.Name, leak)
		}
	}
	return nil
}

// leakedGoroutines tells of which origins there are too many.
func leakedGoroutines(used, fresh map[string]int) (leaks []string) {
	for _, origin := range slices.Sorted(maps.Keys(used)) {
		if n, now := used[origin], fresh[origin]; n > mayHave(origin, now) {
			leaks = append(leaks, fmt.Sprintf("%d goroutines created by %s; just started it has %d", n, origin, now))
		}
	}
	return leaks
}

// mayHave is how many goroutines of one origin a service may have that has n of them just after its start: some of them come
// and go by themselves, and those of gRPC come in twos and threes with each connection between services. What leaks does so
// with each mail, or at least with each fault, of which there are dozens.
func mayHave(origin string, n int) int {
	if strings.HasPrefix(origin, "google.golang.org/grpc") {
		return n + 24
	}
	return n + 8
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
			if err == nil && len(all[p.Name]) == 0 {
				err = fmt.Errorf("%s told of no goroutine when it was asked", p.Name)
			}
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
