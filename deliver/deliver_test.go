package deliver_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Recipients of one task may take different routes: one permit serves them all, and the first match wins.
func TestRoutes(t *testing.T) {
	sink := smtpsink.Start(t, nil, nil)
	root := t.TempDir()
	refuse := route(deliver.ViaReject, "bad@to.test")
	refuse.Reject = deliver.RejectRoute{Code: 551, Enhanced: "5.1.6", Text: "moved"}
	d := newDeliverer(t, nil,
		refuse,
		route(deliver.ViaReject, "worse@to.test"),
		route(deliver.ViaDiscard, "null@to.test"),
		toMaildir(root, "box@to.test", "bad@to.test"),
		toSMTP(sink.Addr, "*.to.test", "ann@to.test"),
	)
	p := &permits{}
	a, n := attempt(t, d, newTask(simple, p, "bad@to.test", "worse@to.test", "null@to.test", "box@to.test", "ann@to.test", "nobody@to.test", "x@sub.to.test"))
	wantStatus(t, a, "ppxddtd")
	if p.asked.Load() != 1 || sink.Conns() != 1 {
		t.Errorf("%d permits, %d connections", p.asked.Load(), sink.Conns())
	}
	only(t, box(t, root, "box@to.test", "new"))
	r := a.GetResults()
	if got := r[0].GetReply(); got.GetCode() != 551 || got.GetEnhancedCode() != "5.1.6" || got.GetText() != "moved" {
		t.Errorf("reject: %v", got)
	}
	if got := r[1].GetReply(); got.GetCode() != 550 || got.GetEnhancedCode() != "5.7.1" {
		t.Errorf("reject by default: %v", got)
	}
	// A missing route is a fault of the configuration and must not bounce mail.
	if got := r[5].GetReply(); got.GetCode() != 451 || got.GetEnhancedCode() != "4.4.4" {
		t.Errorf("no route: %v", got)
	}
	if len(n) != 1 {
		t.Errorf("%d notifications, want one for both failures", len(n))
	}
	if a.GetRoute() != "reject, discard, maildir, smtp" || a.GetDestination() != "to.test" || a.GetNumber() != 1 {
		t.Errorf("attempt %v", a)
	}
}

// Without the permit no route of the task delivers anything.
func TestRoutesWithoutPermit(t *testing.T) {
	sink := smtpsink.Start(t, nil, nil)
	root := t.TempDir()
	p := &permits{err: errNo}
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(root, "box@to.test"), toSMTP(sink.Addr, "*")), newTask(simple, p, "box@to.test", "ann@to.test", "bob@to.test"))
	wantStatus(t, a, "nnn")
	sink.Wait()
	if p.asked.Load() != 1 || len(sink.Messages()) != 0 || len(box(t, root, "box@to.test", "new")) != 0 {
		t.Errorf("asked %d times, sink has %v", p.asked.Load(), sink.Messages())
	}
}

// Rejecting and discarding send nothing, so they need no permit and no content.
func TestRejectAsksNothing(t *testing.T) {
	p := &permits{}
	task := newTask(simple, p, "a@to.test")
	task.Envelope.Sender = ""
	task.Content = nil
	a, n := attempt(t, newDeliverer(t, nil, route(deliver.ViaReject, "*")), task)
	wantStatus(t, a, "p")
	if p.asked.Load() != 0 || len(n) != 0 {
		t.Errorf("asked %d times, %d notifications (case F1)", p.asked.Load(), len(n))
	}
}

func TestAttemptBadIndex(t *testing.T) {
	task := newTask(simple, &permits{}, "a@to.test")
	task.Recipients = []int32{0, 1, -1}
	a, _, err := newDeliverer(t, nil, route(deliver.ViaDiscard, "*")).Attempt(t.Context(), task)
	if err == nil || len(a.GetResults()) != 3 || a.GetResults()[1].GetStatus() != mailv1.ResultStatus_RESULT_STATUS_TEMPORARY {
		t.Errorf("%v, %v", a, err)
	}
}

func TestNilPermit(t *testing.T) {
	root := t.TempDir()
	task := newTask(simple, nil, "a@to.test")
	task.Permit = nil
	a, _ := attempt(t, newDeliverer(t, nil, toMaildir(root, "*")), task)
	wantStatus(t, a, "n")
	if len(box(t, root, "a@to.test", "new")) != 0 {
		t.Error("delivered without a permit")
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*deliver.Config)
		want   string // what the error names; empty for no error
	}{
		{"defaults", func(*deliver.Config) {}, ""},
		{"maildir", func(c *deliver.Config) { c.Routes = []deliver.Route{toMaildir("mail", "*")} }, ""},
		{"reject by default", func(c *deliver.Config) { c.Routes = []deliver.Route{route(deliver.ViaReject, "*")} }, ""},
		{"host name", func(c *deliver.Config) { c.Hostname = "a b" }, "hostname"},
		{"capacity", func(c *deliver.Config) { c.Capacity = 0 }, "capacity"},
		{"time-out", func(c *deliver.Config) { c.Timeouts.DataDot = 0 }, "timeouts.data_dot"},
		{"headers", func(c *deliver.Config) { c.ReturnedHeaders = 0 }, "returned_headers"},
		{"message", func(c *deliver.Config) { c.ReturnedMessage = 1 << 20 }, "returned_message"},
		{"no match", func(c *deliver.Config) { c.Routes = []deliver.Route{toMaildir("mail")} }, "routes[0].match"},
		{"no via", func(c *deliver.Config) { c.Routes = []deliver.Route{route("", "*")} }, "routes[0].via"},
		{"no path", func(c *deliver.Config) { c.Routes = []deliver.Route{toMaildir("", "*")} }, "routes[0].maildir.path"},
		{"no port", func(c *deliver.Config) { c.Routes = []deliver.Route{toMaildir("m", "*"), toSMTP("host", "*")} }, "routes[1].smtp.address"},
		{"two ways", func(c *deliver.Config) {
			r := toSMTP("host:25", "*")
			r.Maildir.Path = "mail"
			c.Routes = []deliver.Route{r}
		}, "routes[0].maildir"},
		{"reject code", func(c *deliver.Config) {
			r := route(deliver.ViaReject, "*")
			r.Reject.Code = 450
			c.Routes = []deliver.Route{r}
		}, "routes[0].reject.code"},
		{"reject status", func(c *deliver.Config) {
			r := route(deliver.ViaReject, "*")
			r.Reject.Enhanced = "4.0.0"
			c.Routes = []deliver.Route{r}
		}, "routes[0].reject.enhanced"},
		{"reject text", func(c *deliver.Config) {
			r := route(deliver.ViaReject, "*")
			r.Reject.Text = "a\r\nb"
			c.Routes = []deliver.Route{r}
		}, "routes[0].reject.text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := deliver.DefaultConfig()
			c.change(&cfg)
			err := cfg.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want+":") {
				t.Errorf("Validate: %v, want %q", err, c.want)
			}
			if _, newErr := deliver.New(cfg, deliver.Options{}); (newErr == nil) != (err == nil) {
				t.Errorf("New: %v, Validate: %v", newErr, err)
			}
		})
	}
}

// The permit is not waited for longer than the context lasts, and nothing is left running.
func TestPermitNeverAnswered(t *testing.T) {
	root := filepath.Join(t.TempDir(), "mail")
	task := newTask(simple, nil, "a@to.test")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	task.Permit = func(ctx context.Context) error {
		cancel()
		return waitForEnd(ctx)
	}
	a, _, err := newDeliverer(t, nil, toMaildir(root, "*")).Attempt(ctx, task)
	if err != nil && !errors.Is(err, ctx.Err()) {
		t.Fatal(err)
	}
	wantStatus(t, a, "n")
	if len(box(t, root, "a@to.test", "new")) != 0 {
		t.Error("delivered without a permit")
	}
}
