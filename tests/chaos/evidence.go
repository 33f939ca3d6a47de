//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/chaos/judge"
	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// judge waits until all mail has ended and looks at everything that must be true then. What can't be looked at is a finding:
// a pipeline, or a database, that does not come back is the gravest fault of all.
func (r *run) judge(ctx context.Context) {
	r.say("all is healed: %d mails accepted; waiting until the last of them has ended", r.traffic.accepted.Load())
	if err := r.judgeRemains(ctx); err != nil {
		r.report.broken("all was healed, but %v", err)
	}
	r.report.judgeUpkeep(r.cluster.Upkeep())
	for _, p := range r.cluster.Services() {
		r.judgeLog(p)
	}
	r.say("judging what became of each mail")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mailPatience)
	defer cancel()
	if err := r.judgeMail(ctx); err != nil {
		r.report.broken("the mail can't be judged: %v", err)
	}
	r.report.Judged = true
	r.report.judgeChaos()
}

// judgeRemains looks at what must work again, and at what may be left over.
func (r *run) judgeRemains(ctx context.Context) error {
	if err := r.drain(ctx); err != nil {
		return fmt.Errorf("the queue can't be watched: %w", err)
	}
	r.say("looking at traces, connections and goroutines")
	if err := r.judgeTraces(ctx); err != nil {
		return fmt.Errorf("traces can't be judged: %w", err)
	}
	if err := r.judgeConnections(ctx); err != nil {
		return fmt.Errorf("connections can't be judged: %w", err)
	}
	if err := r.judgeFiles(ctx); err != nil {
		return fmt.Errorf("open files can't be judged: %w", err)
	}
	if err := r.judgeProcesses(ctx); err != nil {
		return fmt.Errorf("processes can't be judged: %w", err)
	}
	return nil
}

// judgeMail looks at every mail.
func (r *run) judgeMail(ctx context.Context) error {
	conn, err := r.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	e := &judge.Evidence{Calm: r.calm}
	if e.Entries, err = ledger.Read[ledger.Entry](r.sent); err != nil {
		return err
	}
	if e.Messages, err = judge.Read(ctx, conn); err != nil {
		return err
	}
	if e.Arrivals, err = ledger.Read[ledger.Arrival](r.arrived); err != nil {
		return err
	}
	boxed, err := readBoxes(filepath.Join(r.cluster.Mail(), "boxes"))
	if err != nil {
		return err
	}
	e.Arrivals = append(e.Arrivals, boxed...)
	r.report.count(e)
	for _, f := range judge.Judge(e) {
		r.report.find(f)
	}
	r.report.Messages = map[string]*judge.Message{}
	for _, m := range e.Messages {
		r.report.Messages[m.ID] = m
	}
	return r.readLogs()
}

// readLogs finds what the services logged about the messages that findings name.
func (r *run) readLogs() error {
	r.report.Logs = map[string][]string{}
	ids := r.report.guilty()
	for _, p := range r.cluster.Services() {
		text, err := p.Log()
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(text, "\n") {
			for _, id := range ids {
				if strings.Contains(line, id) {
					r.report.Logs[id] = append(r.report.Logs[id], p.Name+": "+line[:min(len(line), 400)])
				}
			}
		}
	}
	return nil
}

// readBoxes reads what lies in Maildirs below a folder.
func readBoxes(root string) ([]ledger.Arrival, error) {
	var all []ledger.Arrival
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Base(filepath.Dir(path)) != "new" {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // a file of this run
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		all = append(all, boxed(path, content, info.ModTime()))
		return nil
	})
	return all, err
}

// boxed is a file of a Maildir as an arrival: <domain>/<local part>/new/<message id>.<mailbox>.
func boxed(path string, content []byte, at time.Time) ledger.Arrival {
	box := filepath.Dir(filepath.Dir(path))
	a := ledger.Arrival{
		Recipient: filepath.Base(box) + "@" + filepath.Base(filepath.Dir(box)), Protocol: "maildir", Reply: 250,
		Size: len(content), Time: at,
	}
	if name := filepath.Base(path); len(name) >= 36 {
		a.MessageID = name[:36]
	}
	id, err := mail.Check(content)
	a.ID = id
	if err != nil {
		a.Fault = fmt.Sprint(err)
	}
	return a
}
