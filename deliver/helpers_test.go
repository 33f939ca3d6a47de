package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const messageID = "01934f5e-7a10-7cc0-8000-0123456789ab"

var errNo = errors.New("no permit")

// clock is a fixed time, so that notifications can be compared.
func clock() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

func route(via deliver.Via, match ...string) deliver.Route {
	r := deliver.Route{Via: via}
	for _, m := range match {
		r.Match = append(r.Match, pattern.MustParse(m))
	}
	return r
}

func toMaildir(path string, match ...string) deliver.Route {
	r := route(deliver.ViaMaildir, match...)
	r.Maildir.Path = path
	return r
}

func toSMTP(address string, match ...string) deliver.Route {
	r := route(deliver.ViaSMTP, match...)
	r.SMTP.Address = address
	return r
}

// newDeliverer makes one with short time-outs, where change may change the configuration.
func newDeliverer(t *testing.T, change func(*deliver.Config), routes ...deliver.Route) *deliver.Deliverer {
	t.Helper()
	cfg := deliver.DefaultConfig()
	cfg.Hostname = "mx.test"
	cfg.Routes = routes
	long := 20 * time.Second
	cfg.Timeouts = deliver.Timeouts{
		Connect: long, Greeting: long, Helo: long, Mail: long, Rcpt: long, Data: long, DataDot: long, Quit: long,
	}
	cfg.ReuseIdle = 0 // so that a sink sees when all is over
	if change != nil {
		change(&cfg)
	}
	d, err := deliver.New(cfg, deliver.Options{Logger: slog.New(slog.DiscardHandler), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// permits counts how often it was asked, and answers with err.
type permits struct {
	asked atomic.Int32
	err   error
}

func (p *permits) ask(context.Context) error {
	p.asked.Add(1)
	return p.err
}

// newTask makes a task to all recipients.
func newTask(content string, p *permits, recipients ...string) deliver.Task {
	env := &mailv1.Envelope{Sender: "sender@from.test"}
	task := deliver.Task{
		MessageID:   messageID,
		Envelope:    env,
		Destination: "to.test",
		Number:      1,
		Size:        int64(len(content)),
		Received:    clock().Add(-time.Minute),
		Permit:      p.ask,
		Content: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader([]byte(content))), nil
		},
	}
	for i, r := range recipients {
		env.Recipients = append(env.Recipients, &mailv1.Recipient{Address: r})
		task.Recipients = append(task.Recipients, int32(i))
	}
	return task
}

func attempt(t *testing.T, d *deliver.Deliverer, task deliver.Task) (*mailv1.Attempt, []*deliver.Notification) {
	t.Helper()
	a, n, err := d.Attempt(t.Context(), task)
	if err != nil {
		t.Fatalf("Attempt: %v", err)
	}
	return a, n
}

// wantStatus compares the results, one letter each: d(elivered), t(emporary), p(ermanent), u(nknown), x (discarded).
func wantStatus(t *testing.T, a *mailv1.Attempt, want string) {
	t.Helper()
	var got string
	for i, r := range a.GetResults() {
		if r.GetRecipient() != int32(i) {
			t.Errorf("result %d is about recipient %d", i, r.GetRecipient())
		}
		if r.GetReply().GetCode() == 0 {
			t.Errorf("result %d has no reply", i)
		}
		got += string("?dtpuxn"[r.GetStatus()])
	}
	if got != want {
		t.Errorf("results %q, want %q: %v", got, want, a.GetResults())
	}
}

func prepend(name, value string) *mailv1.Edit {
	return &mailv1.Edit{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{Name: name, Value: value}}}
}

func remove(name, prefix string) *mailv1.Edit {
	return &mailv1.Edit{Kind: &mailv1.Edit_Remove{Remove: &mailv1.RemoveHeader{Name: name, ValuePrefix: prefix}}}
}

// edited is content with edits applied.
func edited(t *testing.T, content string, edits ...*mailv1.Edit) string {
	t.Helper()
	r, err := deliver.Apply(bytes.NewReader([]byte(content)), edits)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// waitForEnd is a permit that is never answered.
func waitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
