package deliver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// dsnPart is one part of a notification.
type dsnPart struct {
	kind, body string
}

// readDSN reads a notification as any mail program would, and checks what holds for all of them.
func readDSN(t *testing.T, n *deliver.Notification) (*mail.Message, []dsnPart) {
	t.Helper()
	if n.Envelope.GetSender() != "" || len(n.Envelope.GetRecipients()) != 1 {
		t.Errorf("envelope %v", n.Envelope)
	}
	if len(n.Content) > 512<<10 {
		t.Errorf("%d octets", len(n.Content))
	}
	if s := strings.ReplaceAll(string(n.Content), "\r\n", ""); strings.ContainsAny(s, "\r\n\x00") || !bytes.HasSuffix(n.Content, []byte("\r\n")) {
		t.Error("a bare CR, LF or NUL, or no end of the last line (promise P7)")
	}
	msg, err := mail.ReadMessage(bytes.NewReader(n.Content))
	if err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/report" || params["report-type"] != "delivery-status" {
		t.Fatalf("Content-Type %q: %v", msg.Header.Get("Content-Type"), err)
	}
	var parts []dsnPart
	for r := multipart.NewReader(msg.Body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return msg, parts
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, dsnPart{p.Header.Get("Content-Type"), string(body)})
	}
}

// statusGroups reads a delivery-status part: a group for the message, then one for each recipient.
func statusGroups(t *testing.T, body string) []textproto.MIMEHeader {
	t.Helper()
	var groups []textproto.MIMEHeader
	for text := range strings.SplitSeq(strings.TrimSuffix(body, "\r\n"), "\r\n\r\n") {
		h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(strings.TrimSuffix(text, "\r\n") + "\r\n\r\n"))).ReadMIMEHeader()
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		groups = append(groups, h)
	}
	return groups
}

func result(index int32, status mailv1.ResultStatus, code int32, enhanced, text string) *mailv1.RecipientResult {
	return &mailv1.RecipientResult{Recipient: index, Status: status, Reply: &mailv1.Reply{Code: code, EnhancedCode: enhanced, Text: text}}
}

// bounce writes the notifications about all recipients.
func bounce(t *testing.T, task deliver.Task, results ...*mailv1.RecipientResult) []*deliver.Notification {
	t.Helper()
	a, n, err := newDeliverer(t, nil).Bounce(t.Context(), task, results)
	if err != nil || len(a.GetResults()) != 0 {
		t.Fatalf("Bounce: %v, %v", a, err)
	}
	return n
}

const (
	temp = mailv1.ResultStatus_RESULT_STATUS_TEMPORARY
	perm = mailv1.ResultStatus_RESULT_STATUS_PERMANENT
	dunn = mailv1.ResultStatus_RESULT_STATUS_UNKNOWN
)

func TestNotificationGolden(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*deliver.Task)
	}{
		{"headers", func(*deliver.Task) {}},
		{"full", func(t *deliver.Task) { t.Envelope.DsnReturn = mailv1.DsnReturn_DSN_RETURN_FULL }},
		{"utf8", func(t *deliver.Task) {
			t.Envelope.Sender = "j\u00f6rg@from.test"
			t.Envelope.Recipients[0].Address = "b\u00f6b@to.test"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := newTask("From: a\r\nSubject: hello\r\n\r\nbody\r\n", &permits{}, "ann@to.test", "bob@to.test", "cy@to.test")
			task.Edits = []*mailv1.Edit{prepend("Received", "from x\r\n\tby mx.test")}
			task.Envelope.EnvelopeId = "QQ314159"
			task.Envelope.Recipients[1].OriginalRecipient = "rfc822;robert@to.test"
			c.change(&task)
			n := bounce(t, task,
				result(0, perm, 550, "5.1.1", "no such user here, and a text that is long enough to be folded\nsecond line"),
				result(1, temp, 451, "4.4.1", "The next hop refused the connection"),
				result(2, dunn, 0, "", ""))
			if len(n) != 1 {
				t.Fatalf("%d notifications", len(n))
			}
			readDSN(t, n[0])
			golden := filepath.Join("testdata", "dsn-"+c.name+".eml")
			if *update {
				if err := os.WriteFile(golden, n[0].Content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(n[0].Content)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if utf8 := c.name == "utf8"; n[0].Envelope.GetSmtputf8() != utf8 || (n[0].Envelope.GetBodyType() == mailv1.BodyType_BODY_TYPE_8BITMIME) != utf8 {
				t.Errorf("envelope %v", n[0].Envelope)
			}
		})
	}
}

func TestNotificationFields(t *testing.T) {
	task := newTask(simple, &permits{}, "ann@to.test", "bob@to.test")
	n := bounce(t, task, result(0, perm, 550, "5.1.1", "no"), result(1, temp, 451, "4.4.1", "away"))
	msg, parts := readDSN(t, n[0])
	if msg.Header.Get("Auto-Submitted") != "auto-replied" || msg.Header.Get("To") != "<sender@from.test>" || n[0].Envelope.GetRecipients()[0].GetAddress() != "sender@from.test" {
		t.Errorf("header %v", msg.Header)
	}
	if len(parts) != 3 || parts[1].kind != "message/delivery-status" || parts[2].kind != "text/rfc822-headers" {
		t.Fatalf("parts %v", parts)
	}
	groups := statusGroups(t, parts[1].body)
	if len(groups) != 3 || groups[0].Get("Reporting-Mta") != "dns; mx.test" {
		t.Fatalf("groups %v", groups)
	}
	for i, want := range []map[string]string{
		{"Final-Recipient": "rfc822; ann@to.test", "Action": "failed", "Status": "5.1.1", "Diagnostic-Code": "smtp; 550 5.1.1 no"},
		{"Final-Recipient": "rfc822; bob@to.test", "Action": "failed", "Status": "4.4.7", "Diagnostic-Code": "smtp; 451 4.4.1 away"},
	} {
		for name, value := range want {
			if got := groups[i+1].Get(name); got != value {
				t.Errorf("recipient %d: %s: %q, want %q", i, name, got, value)
			}
		}
	}
	if parts[2].body != "Subject: x\r\n" {
		t.Errorf("returned %q", parts[2].body)
	}
}

// Who is told (cases F1, F2, F3).
func TestNotifyWhom(t *testing.T) {
	type notify = []mailv1.DsnNotify
	for _, c := range []struct {
		name   string
		sender string
		notify notify
		want   int
	}{
		{"by default", "a@from.test", nil, 1},
		{"null sender (case F1)", "", nil, 0},
		{"null sender that asks (case F2)", "", notify{mailv1.DsnNotify_DSN_NOTIFY_FAILURE}, 0},
		{"never (case F3)", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_NEVER}, 0},
		{"success only", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS}, 0},
		{"failure and success", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS, mailv1.DsnNotify_DSN_NOTIFY_FAILURE}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := newTask(simple, &permits{}, "ann@to.test")
			task.Envelope.Sender = c.sender
			task.Envelope.Recipients[0].Notify = c.notify
			if n := bounce(t, task, result(0, perm, 550, "5.1.1", "no")); len(n) != c.want {
				t.Errorf("Bounce: %d notifications, want %d", len(n), c.want)
			}
			a, n := attempt(t, newDeliverer(t, nil, route(deliver.ViaReject, "*")), task)
			wantStatus(t, a, "p")
			if len(n) != c.want {
				t.Errorf("Attempt: %d notifications, want %d", len(n), c.want)
			}
		})
	}
}

// A success is told where the sender asked for it and nobody else tells: not where the next hop knows notifications.
// (RFC 3461, section 5.2; case F3.)
func TestNotifySuccess(t *testing.T) {
	type notify = []mailv1.DsnNotify
	success := notify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS}
	for _, c := range []struct {
		name       string
		sender     string
		notify     notify
		extensions []string // of the next hop; nil: a Maildir
		want       string   // the action, empty for no notification
	}{
		{"delivered", "a@from.test", success, nil, "delivered"},
		{"delivered, with failures", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_FAILURE, mailv1.DsnNotify_DSN_NOTIFY_SUCCESS}, nil, "delivered"},
		{"relayed to one that knows nothing of it (case F3)", "a@from.test", success, []string{"8BITMIME"}, "relayed"},
		{"handed over", "a@from.test", success, []string{"DSN"}, ""},
		{"not asked for", "a@from.test", nil, nil, ""},
		{"failures only", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_FAILURE}, nil, ""},
		{"never (case F3)", "a@from.test", notify{mailv1.DsnNotify_DSN_NOTIFY_NEVER}, []string{"8BITMIME"}, ""},
		{"null sender (case F2)", "", success, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			where := toMaildir(t.TempDir(), "*")
			if c.extensions != nil {
				where = toSMTP(smtpsink.Start(t, c.extensions, nil).Addr, "*")
			}
			task := newTask(simple, &permits{}, "ann@to.test", "bob@to.test")
			task.Envelope.Sender, task.Envelope.EnvelopeId = c.sender, "QQ314159"
			task.Envelope.DsnReturn = mailv1.DsnReturn_DSN_RETURN_FULL // which is about failures
			task.Envelope.Recipients[0].Notify = c.notify
			task.Envelope.Recipients[0].OriginalRecipient = "rfc822;team@to.test"
			a, n := attempt(t, newDeliverer(t, nil, where), task)
			wantStatus(t, a, "dd")
			if want := min(len(c.want), 1); len(n) != want {
				t.Fatalf("%d notifications", len(n))
			}
			if c.want == "" {
				return
			}
			_, parts := readDSN(t, n[0])
			groups := statusGroups(t, parts[1].body)
			if len(groups) != 2 || groups[0].Get("Original-Envelope-Id") != "QQ314159" || parts[2].kind != "text/rfc822-headers" {
				t.Fatalf("parts %v", parts)
			}
			for name, value := range map[string]string{
				"Action": c.want, "Status": "2.0.0", "Final-Recipient": "rfc822; ann@to.test", "Original-Recipient": "rfc822; team@to.test",
			} {
				if got := groups[1].Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
		})
	}
}

// Successes and failures of one attempt are told apart.
func TestNotifyMixed(t *testing.T) {
	sink := smtpsink.Start(t, nil, on("RCPT", smtpsink.Action{Reply: "550 5.1.1 no"}))
	task := newTask(simple, &permits{}, "ann@box.test", "bob@else.test")
	for _, r := range task.Envelope.GetRecipients() {
		r.Notify = []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS, mailv1.DsnNotify_DSN_NOTIFY_FAILURE}
	}
	a, n := attempt(t, newDeliverer(t, nil, toMaildir(t.TempDir(), "box.test"), toSMTP(sink.Addr, "*")), task)
	wantStatus(t, a, "dp")
	var actions []string
	for _, one := range n {
		_, parts := readDSN(t, one)
		for _, g := range statusGroups(t, parts[1].body)[1:] {
			actions = append(actions, g.Get("Final-Recipient")+" "+g.Get("Action"))
		}
	}
	want := []string{"rfc822; bob@else.test failed", "rfc822; ann@box.test delivered"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The largest notifications stay within their limit, and hostile text stays in its place.
func TestNotificationBounds(t *testing.T) {
	nasty := strings.Repeat("\u00f6\x1b\r\nStatus: 2.0.0\n", 140)
	var recipients []string
	var results []*mailv1.RecipientResult
	for i := range 250 {
		recipients = append(recipients, fmt.Sprintf("%d%s@to.test", i, strings.Repeat("\u00f6", 120)))
		results = append(results, result(int32(i), perm, 550, "5.1.1", nasty))
	}
	var content strings.Builder
	for i := 0; content.Len() < 200<<10; i++ {
		fmt.Fprintf(&content, "X-%d: %s\r\n", i, strings.Repeat("x", 900))
	}
	content.WriteString("\r\nbody\r\n")
	for _, ret := range []mailv1.DsnReturn{mailv1.DsnReturn_DSN_RETURN_FULL, mailv1.DsnReturn_DSN_RETURN_HEADERS} {
		task := newTask(content.String(), &permits{}, recipients...)
		task.Envelope.DsnReturn = ret
		for i := range task.Envelope.GetRecipients() {
			task.Envelope.Recipients[i].OriginalRecipient = "utf-8;" + recipients[i]
		}
		n := bounce(t, task, results...)
		if len(n) != 3 {
			t.Fatalf("%d notifications", len(n))
		}
		told := 0
		for _, one := range n {
			_, parts := readDSN(t, one)
			for _, g := range statusGroups(t, parts[1].body)[1:] {
				told++
				if g.Get("Status") != "5.1.1" || len(g["Status"]) != 1 {
					t.Fatalf("status %q", g["Status"])
				}
			}
		}
		if told != 250 {
			t.Errorf("%d recipients told of", told)
		}
	}
}

func TestNotificationReturned(t *testing.T) {
	full := mailv1.DsnReturn_DSN_RETURN_FULL
	for _, c := range []struct {
		name, content string
		ret           mailv1.DsnReturn
		kind, want    string
	}{
		{"full", simple, full, "message/rfc822", simple},
		{"full, but too big", simple + strings.Repeat("x\r\n", 200_000), full, "text/rfc822-headers", "Subject: x\r\n"},
		{"full, but a bare LF", simple + "a\nb\r\n", full, "text/rfc822-headers", "Subject: x\r\n"},
		{"bare CR in the header", "A: 1\rB\r\nC: 2\r\n\r\n", 0, "text/rfc822-headers", "A: 1 B\r\nC: 2\r\n"},
		{"header too big", "A: 1\r\nB: " + strings.Repeat("x", 100_000) + "\r\nC: 3\r\n\r\n", 0, "text/rfc822-headers", "A: 1\r\n"},
		{"header without end", "A: 1\r\nB: 2", 0, "text/rfc822-headers", "A: 1\r\nB: 2\r\n"},
		{"nothing", "", 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := newTask(c.content, &permits{}, "ann@to.test")
			task.Envelope.DsnReturn = c.ret
			_, parts := readDSN(t, bounce(t, task, result(0, perm, 550, "5.1.1", "no"))[0])
			if c.kind == "" {
				if len(parts) != 2 {
					t.Errorf("parts %v", parts)
				}
				return
			}
			if len(parts) != 3 || parts[2].kind != c.kind || parts[2].body != c.want {
				t.Errorf("returned %.200v", parts[2:])
			}
		})
	}
	t.Run("unreadable content", func(t *testing.T) {
		task := newTask(simple, &permits{}, "ann@to.test")
		task.Content = func(context.Context) (io.ReadCloser, error) { return nil, errNo }
		if _, parts := readDSN(t, bounce(t, task, result(0, perm, 550, "5.1.1", "no"))[0]); len(parts) != 2 {
			t.Errorf("parts %v", parts)
		}
	})
}
