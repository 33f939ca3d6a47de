package deliver_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

const simple = "Subject: x\r\n\r\nbody\r\n"

// on answers one step with one action.
func on(step string, a smtpsink.Action) smtpsink.Script {
	return func(s, _ string) *smtpsink.Action {
		if s == step {
			return &a
		}
		return nil
	}
}

func short(set func(*deliver.Timeouts)) func(*deliver.Config) {
	return func(c *deliver.Config) { set(&c.Timeouts) }
}

func TestSMTPContent(t *testing.T) {
	for name, content := range map[string]string{
		"plain":               simple,
		"dots":                "Subject: x\r\n\r\n.\r\n..\r\n.x\r\nx.\r\n\r\n.\r\n",
		"first octet is dot":  ".\r\n",
		"headers only":        "Subject: x\r\n",
		"zero octets":         "",
		"eight bits":          "Subject: x\r\n\r\n\xff\xfe\x00\r\n",
		"long line":           "Subject: x\r\n\r\n" + strings.Repeat("z", 70_000) + "\r\n",
		"dots at chunk edges": "Subject: x\r\n\r\n" + strings.Repeat(".\r\n", 40_000),
	} {
		t.Run(name+" (case C9, D12, G2, G3)", func(t *testing.T) {
			sink := smtpsink.Start(t, []string{"8BITMIME", "SIZE 1000000"}, nil)
			p := &permits{}
			task := newTask(content, p, "ann@to.test")
			task.Edits = []*mailv1.Edit{prepend("Received", "from x\r\n\tby y"), remove("No", "")}
			a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
			wantStatus(t, a, "d")
			sink.Wait()
			got := sink.Messages()
			if len(got) != 1 || string(got[0].Data) != edited(t, content, task.Edits...) {
				t.Fatalf("sink has %d messages: %.300q", len(got), got)
			}
			if p.asked.Load() != 1 {
				t.Errorf("asked %d times", p.asked.Load())
			}
			if want := "127.0.0.1 [127.0.0.1]:"; !strings.HasPrefix(a.GetRemote(), want) || a.GetRoute() != "smtp" {
				t.Errorf("route %q, remote %q", a.GetRoute(), a.GetRemote())
			}
		})
	}
}

func TestSMTPCommands(t *testing.T) {
	sink := smtpsink.Start(t, []string{"8BITMIME", "SIZE 0", "DSN", "SMTPUTF8"}, nil)
	task := newTask(simple, &permits{}, "ann@to.test", "j\u00f6rg@to.test", "bob@to.test")
	task.Envelope.EnvelopeId = "a+b c"
	task.Envelope.DsnReturn = mailv1.DsnReturn_DSN_RETURN_HEADERS
	task.Envelope.Recipients[0].Notify = []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS, mailv1.DsnNotify_DSN_NOTIFY_DELAY}
	task.Envelope.Recipients[0].OriginalRecipient = "rfc822;a=b@to.test"
	task.Recipients = []int32{0, 1}
	a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
	wantStatus(t, a, "dd")
	sink.Wait()
	want := []string{
		"EHLO mx.test",
		"MAIL FROM:<sender@from.test> SIZE=20 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb+20c",
		"RCPT TO:<ann@to.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a+3Db@to.test",
		"RCPT TO:<j\u00f6rg@to.test>",
		"DATA",
		"QUIT",
	}
	if diff := cmp.Diff(want, sink.Lines()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSMTPPlainServer(t *testing.T) {
	sink := smtpsink.Start(t, nil, on("EHLO", smtpsink.Action{Reply: "502 what?"}))
	task := newTask(simple, &permits{}, "ann@to.test")
	task.Envelope.Sender = "" // case F2
	a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
	wantStatus(t, a, "d")
	sink.Wait()
	want := []string{"EHLO mx.test", "HELO mx.test", "MAIL FROM:<>", "RCPT TO:<ann@to.test>", "DATA", "QUIT"}
	if diff := cmp.Diff(want, sink.Lines()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Case F3: NOTIFY=NEVER to a next hop that knows nothing of it changes nothing that is sent, and nobody is told of a refusal.
func TestNeverToPlainServer(t *testing.T) {
	sink := smtpsink.Start(t, []string{"8BITMIME"}, func(_, line string) *smtpsink.Action {
		if line == "RCPT TO:<bob@to.test>" {
			return &smtpsink.Action{Reply: "550 5.1.1 nobody"}
		}
		return nil
	})
	task := newTask(simple, &permits{}, "ann@to.test", "bob@to.test")
	for _, r := range task.Envelope.Recipients {
		r.Notify = []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_NEVER}
	}
	a, told := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
	wantStatus(t, a, "dp")
	sink.Wait()
	want := []string{
		"EHLO mx.test", "MAIL FROM:<sender@from.test> BODY=8BITMIME", "RCPT TO:<ann@to.test>", "RCPT TO:<bob@to.test>", "DATA", "QUIT",
	}
	if diff := cmp.Diff(want, sink.Lines()); diff != "" || len(told) > 0 {
		t.Errorf("%d notifications, -want +got:\n%s", len(told), diff)
	}
}

// What each answer, or none, means. The sink never has a complete message where the result is not d or u.
func TestSMTPAnswers(t *testing.T) {
	const reply = "550-5.1.1 no \x1b[31m such\r\n550 5.1.1 user"
	soon := 150 * time.Millisecond
	for _, c := range []struct {
		name     string
		script   smtpsink.Script
		change   func(*deliver.Config)
		want     string
		code     int32
		enhanced string
		text     string
	}{
		{"greeting 554 is about the host", on("greeting", smtpsink.Action{Reply: "554 5.7.1 go away"}), nil, "tt", 554, "5.7.1", "go away"},
		{"greeting hangs", on("greeting", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Greeting = soon }), "tt", 451, "4.4.2", ""},
		{"greeting closes", on("greeting", smtpsink.Action{Then: smtpsink.Close}), nil, "tt", 451, "4.4.2", ""},
		{"greeting is no SMTP", on("greeting", smtpsink.Action{Reply: "HTTP/1.1 400 Bad Request"}), nil, "tt", 451, "4.5.0", ""},
		{"greeting without end", on("greeting", smtpsink.Action{Reply: strings.Repeat("220-x\r\n", 20_000) + "220 x"}), nil, "tt", 451, "4.5.0", ""},
		{"EHLO hangs", on("EHLO", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Helo = soon }), "tt", 451, "4.4.2", ""},
		{"EHLO 550", on("EHLO", smtpsink.Action{Reply: "550 who?"}), nil, "tt", 550, "", "who?"},
		{"MAIL 451", on("MAIL", smtpsink.Action{Reply: "451 4.3.2 later"}), nil, "tt", 451, "4.3.2", "later"},
		{"MAIL 550", on("MAIL", smtpsink.Action{Reply: "550 5.7.1 no"}), nil, "pp", 550, "5.7.1", "no"},
		{"MAIL 530 is about us (case E5)", on("MAIL", smtpsink.Action{Reply: "530 5.7.0 authentication required"}), nil, "tt", 530, "5.7.0", "authentication required"},
		{"MAIL 550 then RST (case C7)", on("MAIL", smtpsink.Action{Reply: "550 5.7.1 no", Then: smtpsink.Reset}), nil, "pp", 550, "5.7.1", "no"},
		{"MAIL hangs", on("MAIL", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Mail = soon }), "tt", 451, "4.4.2", ""},
		{"RCPT all 550", on("RCPT", smtpsink.Action{Reply: reply}), nil, "pp", 550, "5.1.1", "no ?[31m such\nuser"},
		{"RCPT 550 then RST (case C7)", on("RCPT", smtpsink.Action{Reply: "550 5.1.1 no", Then: smtpsink.Reset}), nil, "pt", 550, "5.1.1", "no"},
		{"RCPT 552 is too many", on("RCPT", smtpsink.Action{Reply: "552 too many"}), nil, "tt", 552, "", "too many"},
		{"RCPT 421", on("RCPT", smtpsink.Action{Reply: "421 4.3.2 bye", Then: smtpsink.Close}), nil, "tt", 421, "4.3.2", "bye"},
		{"RCPT hangs", on("RCPT", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Rcpt = soon }), "tt", 451, "4.4.2", ""},
		{"wrong class in the enhanced code", on("RCPT", smtpsink.Action{Reply: "550 4.1.1 no"}), nil, "pp", 550, "", "4.1.1 no"},
		{"DATA 450", on("DATA", smtpsink.Action{Reply: "450 4.2.0 no"}), nil, "tt", 450, "4.2.0", "no"},
		{"DATA 250", on("DATA", smtpsink.Action{Reply: "250 what"}), nil, "tt", 451, "4.5.0", ""},
		{"DATA hangs", on("DATA", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Data = soon }), "tt", 451, "4.4.2", ""},
		{"dot 451", on("dot", smtpsink.Action{Reply: "451 4.3.0 no"}), nil, "tt", 451, "4.3.0", "no"},
		{"dot 554", on("dot", smtpsink.Action{Reply: "554 5.6.0 spam"}), nil, "pp", 554, "5.6.0", "spam"},
		{"dot 550 then RST (case C7)", on("dot", smtpsink.Action{Reply: "550 5.7.1 spam", Then: smtpsink.Reset}), nil, "pp", 550, "5.7.1", "spam"},
		{"dot 550 without line end", on("dot", smtpsink.Action{Reply: "550 5.7.1 spam", Then: smtpsink.Close, Cut: true}), nil, "pp", 550, "5.7.1", "spam"},
		{"dot 250 without line end", on("dot", smtpsink.Action{Reply: "250 2.0.0 tak", Then: smtpsink.Close, Cut: true}), nil, "uu", 451, "4.4.2", ""},
		{"dot then closed (case B5)", on("dot", smtpsink.Action{Then: smtpsink.Close}), nil, "uu", 451, "4.4.2", ""},
		{"dot then RST (case B5)", on("dot", smtpsink.Action{Then: smtpsink.Reset}), nil, "uu", 451, "4.4.2", ""},
		{"dot then silent (case C1)", on("dot", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.DataDot = soon }), "uu", 451, "4.4.2", ""},
		{"dot then half a reply", on("dot", smtpsink.Action{Reply: "250-taken", Then: smtpsink.Close}), nil, "uu", 451, "4.4.2", ""},
		{"dot then nonsense", on("dot", smtpsink.Action{Reply: "ok"}), nil, "uu", 451, "4.4.2", ""},
		{"dot then 354", on("dot", smtpsink.Action{Reply: "354 more?"}), nil, "uu", 451, "4.5.0", ""},
		{"QUIT hangs", on("QUIT", smtpsink.Action{Then: smtpsink.Hang}), short(func(l *deliver.Timeouts) { l.Quit = soon }), "dd", 250, "2.0.0", "taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := smtpsink.Start(t, []string{"8BITMIME"}, c.script)
			a, _ := attempt(t, newDeliverer(t, c.change, toSMTP(sink.Addr, "*")), newTask(simple, &permits{}, "ann@to.test", "bob@to.test"))
			wantStatus(t, a, c.want)
			got := a.GetResults()[0].GetReply()
			if c.code != got.GetCode() || c.enhanced != got.GetEnhancedCode() {
				t.Errorf("reply %v, want %d %s", got, c.code, c.enhanced)
			}
			if c.text != "" && got.GetText() != c.text {
				t.Errorf("text %q, want %q", got.GetText(), c.text)
			}
			sink.Wait()
			if sink.Conns() != 1 {
				t.Errorf("%d connections", sink.Conns())
			}
		})
	}
}

// Case A2: each recipient has the answer that was given to it.
func TestSMTPPartialRefusal(t *testing.T) {
	sink := smtpsink.Start(t, nil, func(step, line string) *smtpsink.Action {
		switch {
		case step == "RCPT" && strings.Contains(line, "bob@"):
			return &smtpsink.Action{Reply: "550 5.1.1 no bob"}
		case step == "RCPT" && strings.Contains(line, "cy@"):
			return &smtpsink.Action{Reply: "452 4.5.3 too many"}
		default:
			return nil
		}
	})
	a, n := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), newTask(simple, &permits{}, "ann@to.test", "bob@to.test", "cy@to.test", "dot@to.test"))
	wantStatus(t, a, "dptd")
	if len(n) != 1 || !strings.Contains(string(n[0].Content), "no bob") || strings.Contains(string(n[0].Content), "cy@to.test") {
		t.Errorf("notifications: %v", n)
	}
	sink.Wait()
	if m := sink.Messages(); len(m) != 1 || len(m[0].Rcpt) != 2 {
		t.Errorf("sink has %v", m)
	}
}

// A peer that refuses while the content is under way and closes: its words count, and nothing was sent.
func TestSMTPRefusedUnderWay(t *testing.T) {
	sink := smtpsink.Start(t, nil, on("body", smtpsink.Action{Reply: "552 5.3.4 too much", Then: smtpsink.Close}))
	content := "Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 400_000)
	a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), newTask(content, &permits{}, "ann@to.test"))
	wantStatus(t, a, "p")
	if got := a.GetResults()[0].GetReply(); got.GetCode() != 552 {
		t.Errorf("reply %v", got)
	}
}

// A peer that does not read holds us for the time-out of one write only.
func TestSMTPStalledBody(t *testing.T) {
	release := make(chan struct{})
	sink := smtpsink.Start(t, nil, func(step, _ string) *smtpsink.Action {
		if step == "body" {
			<-release
			return &smtpsink.Action{Then: smtpsink.Close}
		}
		return nil
	})
	content := "Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 400_000)
	d := newDeliverer(t, short(func(l *deliver.Timeouts) { l.Data = 300 * time.Millisecond }), toSMTP(sink.Addr, "*"))
	a, _ := attempt(t, d, newTask(content, &permits{}, "ann@to.test"))
	close(release)
	wantStatus(t, a, "t")
}

func TestSMTPWithoutPermit(t *testing.T) {
	sink := smtpsink.Start(t, nil, nil)
	p := &permits{err: errNo}
	a, n := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), newTask(simple, p, "ann@to.test"))
	wantStatus(t, a, "n")
	sink.Wait()
	if len(sink.Messages()) != 0 || len(sink.Partial()) != 1 || p.asked.Load() != 1 || len(n) != 0 {
		t.Errorf("messages %v, partial %q, asked %d times", sink.Messages(), sink.Partial(), p.asked.Load())
	}
	if string(sink.Partial()[0]) != simple {
		t.Errorf("the content had not been sent before the answer: %q", sink.Partial()[0])
	}
}

// The permit is asked while the body is under way, and nothing ends before its answer.
func TestSMTPPermitBeforeDot(t *testing.T) {
	sink := smtpsink.Start(t, nil, nil)
	task := newTask(simple, &permits{}, "ann@to.test")
	task.Permit = func(context.Context) error {
		if n := len(sink.Messages()); n != 0 {
			t.Errorf("%d messages before the permit", n)
		}
		if !slices.Contains(sink.Lines(), "DATA") {
			t.Error("asked before DATA")
		}
		return nil
	}
	a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
	wantStatus(t, a, "d")
}

// Promise P7: no bare CR or LF leaves.
func TestSMTPBareLineEnds(t *testing.T) {
	for _, body := range []string{"a\nb\r\n", "a\rb\r\n", "a\r\r\n", "\n.\r\n", "\r\n.\n", ".\r", "a\r\n.\rx", "end\r", "end\n"} {
		sink := smtpsink.Start(t, nil, nil)
		a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), newTask("Subject: x\r\n\r\n"+body, &permits{}, "ann@to.test"))
		wantStatus(t, a, "p")
		sink.Wait()
		if len(sink.Messages()) != 0 {
			t.Errorf("%q was sent: %v", body, sink.Messages())
		}
	}
}

func TestSMTPMissingExtensions(t *testing.T) {
	for _, c := range []struct {
		name   string
		ehlo   []string
		change func(*deliver.Task)
		want   string
		status string
	}{
		{"UTF-8 recipient (case G1)", nil, func(t *deliver.Task) { t.Envelope.Recipients[0].Address = "j\u00f6rg@to.test" }, "pd", "5.6.7"},
		{"UTF-8 sender (case G1)", nil, func(t *deliver.Task) { t.Envelope.Sender = "j\u00f6rg@from.test" }, "pp", "5.6.7"},
		{"UTF-8 header (case G1)", nil, func(t *deliver.Task) {
			t.Envelope.Smtputf8 = true
			t.Edits = []*mailv1.Edit{prepend("X", "\u00f6")}
		}, "pp", "5.6.7"},
		{"SMTPUTF8 without need", nil, func(t *deliver.Task) { t.Envelope.Smtputf8 = true }, "dd", ""},
		{"UTF-8 with the extension", []string{"smtputf8"}, func(t *deliver.Task) { t.Envelope.Recipients[0].Address = "j\u00f6rg@to.test" }, "dd", ""},
		{"too big", []string{"SIZE 19"}, func(*deliver.Task) {}, "pp", "5.3.4"},
		{"too big with edits", []string{"SIZE 20"}, func(t *deliver.Task) { t.Edits = []*mailv1.Edit{prepend("X", "1")} }, "pp", "5.3.4"},
		{"just fits", []string{"SIZE 20"}, func(*deliver.Task) {}, "dd", ""},
		{"no limit", []string{"SIZE"}, func(*deliver.Task) {}, "dd", ""},
		{"command in an address", nil, func(t *deliver.Task) { t.Envelope.Recipients[0].Address = "a@b>\r\nRSET\r\nx" }, "pd", "5.1.3"},
		{"parameter in an address", nil, func(t *deliver.Task) { t.Envelope.Recipients[0].Address = "a@b> NOTIFY=NEVER" }, "pd", "5.1.3"},
		{"command in the sender", nil, func(t *deliver.Task) { t.Envelope.Sender = "a@b\nDATA" }, "pp", "5.1.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := smtpsink.Start(t, c.ehlo, nil)
			task := newTask(simple, &permits{}, "ann@to.test", "bob@to.test")
			c.change(&task)
			a, _ := attempt(t, newDeliverer(t, nil, toSMTP(sink.Addr, "*")), task)
			wantStatus(t, a, c.want)
			if got := a.GetResults()[0].GetReply().GetEnhancedCode(); c.status != "" && got != c.status {
				t.Errorf("status %s, want %s", got, c.status)
			}
			sink.Wait()
			for _, line := range sink.Lines() {
				if line == "RSET" || strings.Contains(line, "NOTIFY") {
					t.Errorf("smuggled: %q", line)
				}
			}
		})
	}
}

func TestSMTPConnect(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	for _, c := range []struct {
		name   string
		err    error
		status string
	}{
		{"closed port", nil, "4.4.1"},
		{"SERVFAIL (case E2)", &net.DNSError{Err: "server misbehaving", IsTemporary: true}, "4.4.3"},
		{"no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, "4.4.4"},
		{"time-out", context.DeadlineExceeded, "4.4.1"},
		{"anything", errors.New("secret"), "4.4.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := deliver.DefaultConfig()
			cfg.Routes = []deliver.Route{toSMTP(closed, "*")}
			opts := deliver.Options{}
			if c.err != nil {
				opts.Dial = func(context.Context, string, string) (net.Conn, error) {
					return nil, &net.OpError{Op: "dial", Err: c.err}
				}
			}
			d, err := deliver.New(cfg, opts)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := attempt(t, d, newTask(simple, &permits{}, "ann@to.test"))
			wantStatus(t, a, "t")
			if got := a.GetResults()[0].GetReply(); got.GetEnhancedCode() != c.status || strings.Contains(got.GetText(), "secret") {
				t.Errorf("reply %v, want %s", got, c.status)
			}
		})
	}
}

// A cancelled job ends at once: before the dot nothing was sent, after it the outcome is unknown.
func TestSMTPCancelled(t *testing.T) {
	for step, want := range map[string]string{"RCPT": "t", "dot": "u"} {
		t.Run(step, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			sink := smtpsink.Start(t, nil, func(s, _ string) *smtpsink.Action {
				if s != step {
					return nil
				}
				cancel()
				return &smtpsink.Action{Then: smtpsink.Hang}
			})
			a, _, err := newDeliverer(t, nil, toSMTP(sink.Addr, "*")).Attempt(ctx, newTask(simple, &permits{}, "ann@to.test"))
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, a, want)
		})
	}
}
