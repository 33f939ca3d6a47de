//go:build processes

package e2e

import (
	"context"
	"fmt"
	"net/smtp"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// build builds the program once for all tests of the package.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rohrpost-bin-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "rohrpost")
	out, err := exec.Command("go", "build", "-o", binary, "../../services/cmd/rohrpost").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return binary, nil
})

func startProcesses(t *testing.T) *rohrtest.Pipeline {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithConfig(func(cfg *services.Config) {
		// What a kill left unknown or deferred is tried again soon, so that the test need not wait a minute.
		cfg.Spool.UnknownDelay = time.Second
		cfg.Spool.BackOff = []time.Duration{2 * time.Second}
		cfg.Spool.ReturnGrace = 2 * time.Second
	}))
}

// The same mail, six processes, mutual TLS, one trace.
func TestProcessesOneMail(t *testing.T) {
	p := startProcesses(t)
	content := mail("processes", "Hello.\r\n")
	m := p.WaitEnded(p.Send("ann@a.example", []string{"bob@b.example"}, content))
	checkArrived(t, p, content, m)
	spans := p.WaitTree(m.GetSummary().GetTraceId(), "smtp.transaction", "spool.accept", "parser.job", "filter.job", "deliver.job")
	ids := map[string]bool{}
	for _, s := range spans {
		ids[s.SpanID] = true
	}
	for _, s := range spans {
		if s.ParentID != "" && !ids[s.ParentID] {
			t.Errorf("%s %s is an orphan:\n%s", s.Service, s.Name, rohrtest.Tree(spans))
		}
	}
}

// traffic sends mail from several sessions until it is stopped, and keeps what was accepted.
type traffic struct {
	p    *rohrtest.Pipeline
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]string // id → recipient
	refused  int
}

func startTraffic(p *rohrtest.Pipeline, sessions int) *traffic {
	tr := &traffic{p: p, stop: make(chan struct{}), accepted: map[string]string{}}
	for s := range sessions {
		tr.wg.Go(func() { tr.session(s) })
	}
	return tr
}

// session sends mail after mail. A broken session or a refusal is what a client sees of a kill: it comes again.
func (tr *traffic) session(s int) {
	var c *smtp.Client
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-tr.stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		if c == nil {
			c, _ = smtp.Dial(tr.p.SMTP())
			if c == nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
		}
		to := fmt.Sprintf("user%d@d%d.example", s, i%3)
		id, err := tr.p.SendOn(c, "ann@a.example", []string{to}, mail(fmt.Sprintf("traffic-%d-%d", s, i), "Hello.\r\n"))
		tr.mu.Lock()
		if err == nil {
			tr.accepted[id] = to
		} else {
			tr.refused++
			_ = c.Close()
			c = nil
		}
		tr.mu.Unlock()
	}
}

func (tr *traffic) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.accepted)
}

// waitMore waits until n more mails have been accepted.
func (tr *traffic) waitMore(t *testing.T, n int) {
	t.Helper()
	want := tr.count() + n
	for deadline := time.Now().Add(rohrtest.Patience); tr.count() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d of %d mails were accepted: the pipeline does not come back", tr.count(), want)
		}
	}
}

func (tr *traffic) end() map[string]string {
	close(tr.stop)
	tr.wg.Wait()
	return tr.accepted
}

var receivedID = regexp.MustCompile(`\bid ([0-9a-f]{8}-[0-9a-f-]{27})`)

// checkAllArrived checks that everything that was accepted ended as delivered and lies once at its recipient: a Maildir's
// file names keep a retry of an unknown attempt from making a second copy.
func checkAllArrived(t *testing.T, p *rohrtest.Pipeline, accepted map[string]string) {
	t.Helper()
	recipients := map[string]bool{}
	for id, to := range accepted {
		recipients[to] = true
		m := p.WaitEnded(id)
		if s := m.GetSummary().GetRecipients()[0].GetState(); s != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
			t.Errorf("%s ended as %v: %v", id, s, m.GetJournal())
		}
		checkAttempts(t, id, events(m.GetJournal()))
	}
	copies := map[string]int{}
	for to := range recipients {
		for _, got := range p.Mail(to) {
			if m := receivedID.FindSubmatch(got); m != nil {
				copies[string(m[1])]++
			}
		}
	}
	for id, to := range accepted {
		if copies[id] != 1 {
			t.Errorf("%s lies %d times at %s", id, copies[id], to)
		}
	}
}

// checkAttempts checks promise P3 by the journal, since a Maildir hides a second copy: one delivery, and after the first
// permit another only where it is told that the attempt before came to nothing or is unknown.
func checkAttempts(t *testing.T, id string, journal []string) {
	t.Helper()
	delivered, open := 0, false
	for _, event := range journal {
		switch event {
		case "permitted":
			if open {
				t.Errorf("%s was permitted again while an attempt was open: %v", id, journal)
			}
			open = true
		case "unknown", "not_attempted", "deferred", "job_failed":
			open = false
		case "delivered":
			delivered++
			open = false
		}
	}
	if delivered != 1 {
		t.Errorf("%s was delivered %d times: %v", id, delivered, journal)
	}
}

// kill -9 of each process in turn under traffic: everything that was accepted arrives.
func TestKillEachProcess(t *testing.T) {
	p := startProcesses(t)
	for _, service := range []string{"parser", "filter", "deliver", "gateway", "spool"} {
		t.Run(service, func(t *testing.T) {
			tr := startTraffic(p, 4)
			tr.waitMore(t, 50)
			p.Kill(service)
			time.Sleep(300 * time.Millisecond) // traffic meets the hole
			p.StartProcess(service)
			tr.waitMore(t, 50)
			accepted := tr.end()
			if len(accepted) < 100 {
				t.Fatalf("only %d mails", len(accepted))
			}
			checkAllArrived(t, p, accepted)
		})
	}
}

// Promise P1: what got a 250 outlives a crash of PostgreSQL at any moment. With synchronous_commit off, or with the 250
// before the commit, this is red.
func TestP1_PostgresKilledUnderTraffic(t *testing.T) {
	p := startProcesses(t)
	tr := startTraffic(p, 8)
	for range 3 {
		tr.waitMore(t, 100)
		if err := p.Postgres().Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.Postgres().Restart(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	tr.waitMore(t, 100)
	checkAllArrived(t, p, tr.end())
}

// Two parser processes share the work.
func TestTwoParsersShare(t *testing.T) {
	p := startProcesses(t)
	p.StartProcess("parser-2")
	parsedBy := map[string]int{}
	for deadline := time.Now().Add(rohrtest.Patience); len(parsedBy) < 2; {
		parsedBy[parser(p.WaitEnded(p.Send("ann@a.example", []string{"bob@b.example"}, mail("who", "Hello.\r\n"))))]++
		if time.Now().After(deadline) {
			t.Fatalf("parsed by %v alone: the second parser gets nothing", parsedBy)
		}
	}
	tr := startTraffic(p, 8)
	tr.waitMore(t, 400)
	clear(parsedBy)
	total := 0
	for id := range tr.end() {
		parsedBy[parser(p.WaitEnded(id))]++
		total++
	}
	if len(parsedBy) != 2 {
		t.Fatalf("parsed by %v, want two workers", parsedBy)
	}
	for worker, n := range parsedBy {
		if share := 100 * n / total; share < 25 {
			t.Errorf("%s parsed %d %% of %d, want its share", worker, share, total)
		}
	}
}

// parser tells who parsed a message.
func parser(m *adminv1.Message) string {
	for _, e := range m.GetJournal() {
		if e.GetEvent() == "parsed" {
			return e.GetWorker()
		}
	}
	return ""
}

// Postgres away: clients get 451, nothing crashes, service returns by itself (case A1).
func TestPostgresAway(t *testing.T) {
	p := startProcesses(t)
	before := p.Send("ann@a.example", []string{"bob@b.example"}, mail("before", "Hello.\r\n"))
	p.WaitEnded(before)
	if err := p.Postgres().Immediate(); err != nil {
		t.Fatal(err)
	}
	_, err := p.TrySend("ann@a.example", []string{"bob@b.example"}, mail("away", "Hello.\r\n"))
	checkTemporary(t, err)
	if err := p.Postgres().Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(rohrtest.Patience); ; time.Sleep(100 * time.Millisecond) {
		id, err := p.TrySend("ann@a.example", []string{"bob@b.example"}, mail("after", "Hello.\r\n"))
		if err == nil {
			p.WaitEnded(id)
			break
		}
		checkTemporary(t, err)
		if time.Now().After(deadline) {
			t.Fatalf("service did not return: %v", err)
		}
	}
	p.WaitEnded(before) // which bears a connection of the spool that the crash has broken
}

func checkTemporary(t *testing.T, err error) {
	t.Helper()
	if reply, ok := err.(*textproto.Error); ok && (reply.Code < 400 || reply.Code > 499) { //nolint:errorlint // net/textproto returns it bare
		t.Errorf("got %v while the database was away, want a 4xx", err)
	}
	if err == nil {
		t.Error("a mail was accepted while the database was away")
	}
}
