package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rohrpost/rohrpost/gateway"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// step is a line that a client sends and the start of the reply to it.
type step struct{ send, want string }

func TestDialogs(t *testing.T) {
	long := strings.Repeat("a", 250)
	for name, steps := range map[string][]step{
		"extensions": {{"EHLO c.test", "250-mx.test Hello c.test\n250-LIMITS RCPTMAX=1000\n250-PIPELINING\n250-8BITMIME\n250-ENHANCEDSTATUSCODES\n" +
			"250-CHUNKING\n250-SMTPUTF8\n250-DSN\n250 SIZE 50000000"}},
		"HELO":                {{"HELO c.test", "250 mx.test Hello c.test"}, {"QUIT", "221 2.0.0 mx.test "}},
		"empty HELO":          {{"HELO", "501 "}, {"EHLO", "501 "}, {"HELO c.test", "250 "}},
		"trailing space":      {{"NOOP ", "250 "}, {"EHLO c.test  ", "250-"}},
		"unknown command":     {{"WHATISTHIS", "500 5.5.2"}, {"NOOP", "250 "}},
		"web browser":         {{"GET / HTTP/1.1", "502 5.7.0"}},
		"STARTTLS not given":  {{"STARTTLS", "502 5.5.1"}},
		"AUTH not given":      {{"EHLO c.test", "250-"}, {"AUTH PLAIN", "502 "}},
		"case F2 null sender": {{"EHLO c.test", "250-"}, {"MAIL FROM:<>", "250 "}},
		"MAIL before EHLO":    {{"MAIL FROM:<a@x.test>", "503 5.5.1"}},
		"RCPT before MAIL":    {{"EHLO c.test", "250-"}, {"RCPT TO:<a@x.test>", "503 5.5.1"}},
		"DATA before RCPT":    {{"EHLO c.test", "250-"}, {"MAIL FROM:<a@x.test>", "250 "}, {"DATA", "503 5.5.1"}},
		"unknown parameter":   {{"EHLO c.test", "250-"}, {"MAIL FROM:<a@x.test> X=Y", "555 5.5.4"}, {"MAIL FROM:<a@x.test> BY=1;R", "555 5.5.4"}},
		"senders": {
			{"EHLO c.test", "250-"},
			{"MAIL LALA: <>", "501 5.5.2"},
			{"MAIL FROM:<pepe>", "501 5.1.7"},
			{"MAIL FROM:<a@-x->", "501 5.1.7"},
			{"MAIL FROM:<" + long + "@x.test>", "501 5.1.7 Sender address too long"},
			{"MAIL FROM:<\xc3\xa4@x.test>", "553 5.6.7"},
			{"MAIL FROM:<\xc3\xa4@x.test> SMTPUTF8", "250 "},
			{"RSET", "250 "},
			{"MAIL FROM:<\xff@x.test> SMTPUTF8", "501 5.1.7"},
			{"MAIL FROM: <a@[192.0.2.1]> BODY=8BITMIME", "250 "},
			{"RSET", "250 "},
			{"MAIL FROM:<a@[IPv6:2001:db8::1]>", "250 "},
			{"RSET", "250 "},
			{"MAIL FROM:<a@[1.2.3.256]>", "501 5.1.7"},
		},
		"recipients": {
			{"EHLO c.test", "250-"},
			{"MAIL FROM:<a@x.test>", "250 "},
			{"RCPT LALA: <>", "501 5.5.2"},
			{"RCPT TO:<pepe>", "501 5.1.3"},
			{"RCPT TO:<>", "501 5.1.3"},
			{"RCPT TO:<b@c@d.test>", "501 5.1.3"},
			{"RCPT TO:<b..c@d.test>", "501 5.1.3"},
			{"RCPT TO:<b@d\x01.test>", "500 5.5.2"},
			{"RCPT TO:<" + long + "@x.test>", "501 5.1.3 Recipient address too long"},
			{"RCPT TO:<\"b c\"@d.test>", "250 "},
			{"RCPT TO:<Postmaster>", "250 "},
			{"RCPT TO:<@relay.test:e@f.test>", "250 "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, &fakeSpool{}, startOptions{}).dial(t)
			for _, s := range steps {
				d.cmd(s.send, s.want)
			}
		})
	}
}

// What goes into the envelope and the Received field.
func TestSubmission(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 5e6, time.UTC)
	for _, c := range []struct {
		name, hello, mail string
		rcpt              []string
		want              *mailv1.Envelope
		received          string // with ID for the id
	}{{
		name: "ESMTP, one recipient", hello: "EHLO c.test", mail: "MAIL FROM:<a@c.test> BODY=8BITMIME", rcpt: []string{`"b c"@x.test`},
		want: &mailv1.Envelope{
			Sender:   "a@c.test",
			BodyType: mailv1.BodyType_BODY_TYPE_8BITMIME, Recipients: []*mailv1.Recipient{{Address: `"b c"@x.test`}},
			Reception: &mailv1.Reception{Helo: "c.test", Protocol: "ESMTP"},
		},
		received: "from c.test ([127.0.0.1])\r\n\tby mx.test (Rohrpost) with ESMTP\r\n\tid ID\r\n\tfor <\"b c\"@x.test>;\r\n\tMon, 30 Nov 2026 12:00:00 +0000",
	}, {
		name: "SMTP, odd HELO, two recipients", hello: "HELO what?ever", mail: "MAIL FROM:<>", rcpt: []string{"B@x.test", "postmaster"},
		want: &mailv1.Envelope{
			Recipients: []*mailv1.Recipient{{Address: "B@x.test"}, {Address: "postmaster@mx.test"}},
			Reception:  &mailv1.Reception{Helo: "what?ever", Protocol: "SMTP"},
		},
		received: "from [127.0.0.1] ([127.0.0.1])\r\n\tby mx.test (Rohrpost) with SMTP\r\n\tid ID;\r\n\tMon, 30 Nov 2026 12:00:00 +0000",
	}, {
		name: "SMTPUTF8", hello: "EHLO [127.0.0.1]", mail: "MAIL FROM:<ä@c.test> SMTPUTF8 BODY=7BIT", rcpt: []string{"ö@x.test"},
		want: &mailv1.Envelope{
			Sender: "ä@c.test", Smtputf8: true, BodyType: mailv1.BodyType_BODY_TYPE_7BIT,
			Recipients: []*mailv1.Recipient{{Address: "ö@x.test"}},
			Reception:  &mailv1.Reception{Helo: "[127.0.0.1]", Protocol: "UTF8SMTP"},
		},
		received: "from [127.0.0.1] ([127.0.0.1])\r\n\tby mx.test (Rohrpost) with UTF8SMTP\r\n\tid ID\r\n\tfor <ö@x.test>;\r\n\tMon, 30 Nov 2026 12:00:00 +0000",
	}} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{now: now}, startOptions{})
			d := e.dial(t)
			d.cmd(c.hello, "250")
			d.cmd(c.mail, "250 ")
			for _, r := range c.rcpt {
				d.cmd("RCPT TO:<"+r+">", "250 ")
			}
			d.cmd("DATA", "354 ")
			id := strings.TrimPrefix(d.cmd("x\r\n.", "250 2.0.0 Ok: queued as "), "250 2.0.0 Ok: queued as ")
			sub := e.spool.all()[0].sub
			if u, err := uuid.Parse(id); err != nil || u != sub.ID || u.Version() != 7 || !sameMilli(u, now) {
				t.Errorf("id %s, %v: want that of the submission, a UUIDv7 of the spool's time", id, err)
			}
			rec := c.want.Reception
			rec.ClientIp, rec.Gateway, rec.ReceivedAt = "127.0.0.1", "mx.test", timestamppb.New(now)
			rec.SessionId = sub.Envelope.Reception.SessionId
			if diff := cmp.Diff(c.want, sub.Envelope, protocmp.Transform()); diff != "" || rec.SessionId == "" {
				t.Errorf("envelope (-want +got):\n%s", diff)
			}
			want := &mailv1.Edit{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{
				Name: "Received", Value: strings.ReplaceAll(c.received, "ID", id),
			}}}
			if len(sub.Edits) != 1 || !proto.Equal(want, sub.Edits[0]) {
				t.Errorf("edits %v, want %v", sub.Edits, want)
			}
		})
	}
}

func sameMilli(id uuid.UUID, at time.Time) bool {
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec).UnixMilli() == at.UnixMilli()
}

// Cases A1 and A5: what fails inside is never permanent, and its cause never leaves. Promise P1: no 250 without the
// spool's.
func TestSpoolErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"case A1 plain", errors.New("password is secret"), "451 4.3.0 Temporary system problem, try again later"},
		{"case A1 wrapped", fmt.Errorf("storing: %w", errors.New("secret")), "451 4.3.0 Temporary"},
		{"case A1 deadline", fmt.Errorf("waiting: %w", context.DeadlineExceeded), "451 4.4.2 "},
		{"case A1 cancelled", context.Canceled, "451 4.3.0 "},
		{"case A5 no room", smtpreply.New(452, "4.3.1", "Insufficient storage").Because(errors.New("ENOSPC")), "452 4.3.1 Insufficient storage"},
		{"decision", fmt.Errorf("submit: %w", smtpreply.New(550, "5.7.1", "We don't want this")), "550 5.7.1 We don't want this"},
		{"421 without an end", smtpreply.New(421, "4.7.1", "Not now"), "451 4.7.1 Not now"},
		{"two lines", smtpreply.New(550, "5.7.1", "No\nnever"), "550-No\n550 5.7.1 never"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{answer: func(context.Context, *gateway.Submission) error { return c.err }}, startOptions{})
			d := e.dial(t)
			d.envelope()
			d.cmd("DATA", "354 ")
			got := d.cmd("x\r\n.", c.want)
			d.cmd("MAIL FROM:<a@c.test>", "250 ")
			d.cmd("RCPT TO:<b@x.test>", "250 ")
			d.send("BDAT 3 LAST\r\nx\r\n")
			if bdat := d.reply(); bdat != got {
				t.Errorf("reply to BDAT %q, to DATA %q", bdat, got)
			}
		})
	}
}

// Promise P1: the reply waits for the spool's answer, and for timeouts.submit at most.
func TestSubmitDeadline(t *testing.T) {
	for _, size := range []int{10, gateway.InlineLimit + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			e := start(t, &fakeSpool{answer: func(ctx context.Context, _ *gateway.Submission) error {
				<-ctx.Done()
				return ctx.Err()
			}}, startOptions{change: func(c *gateway.Config) { c.Timeouts.Submit = 50 * time.Millisecond }})
			d := e.dial(t)
			d.envelope()
			d.cmd("DATA", "354 ")
			d.cmd(strings.Repeat("x\r\n", size/3+1)+".", "451 4.4.2 ")
			d.cmd("NOOP", "250 ")
		})
	}
}

// Case D8: nothing of a transaction is left after its end.
func TestTransactionIsDroppedWhole(t *testing.T) {
	e := start(t, &fakeSpool{answer: func(context.Context, *gateway.Submission) error {
		return smtpreply.New(550, "5.7.1", "no")
	}}, startOptions{})
	for name, end := range map[string]step{
		"refused DATA": {"DATA\r\nx\r\n.", "354 "},
		"refused BDAT": {"BDAT 3 LAST\r\nx", "550 "},
		"RSET":         {"RSET", "250 "},
		"EHLO":         {"EHLO again.test", "250-"},
	} {
		t.Run(name, func(t *testing.T) {
			d := e.dial(t)
			d.envelope()
			d.cmd(end.send, end.want)
			if end.want == "354 " {
				d.want("550 ")
			}
			d.cmd("RCPT TO:<c@x.test>", "503 ")
			d.cmd("DATA", "503 ")
		})
	}
}

// RFC 5321, section 4.5.3.1.10.
func TestMaxRecipients(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxRecipients = 100 }})
	d := e.dial(t)
	d.cmd("EHLO c.test", "250-")
	d.cmd("MAIL FROM:<>", "250 ")
	for i := range 100 {
		d.cmd(fmt.Sprintf("RCPT TO:<b%d@x.test>", i), "250 ")
	}
	d.cmd("RCPT TO:<over@x.test>", "452 4.5.3")
	d.cmd("DATA", "354 ")
	d.cmd("x\r\n.", "250 ")
	if n := len(e.spool.all()[0].sub.Envelope.Recipients); n != 100 {
		t.Errorf("%d recipients", n)
	}
}

// RFC 5321, section 6.3.
func TestLoop(t *testing.T) {
	hops := func(n int) string { return strings.Repeat("Received: from a.test\r\n\tby b.test; x\r\n", n) }
	pad := strings.Repeat("X-Pad: "+strings.Repeat("x", 900)+"\r\n", 200)
	for name, c := range map[string]struct{ header, want string }{
		"100 hops":                   {hops(100), "250 "},
		"101 hops":                   {hops(101), "554 5.4.6"},
		"in the body":                {"S: x\r\n\r\n" + hops(101), "250 "},
		"101 hops in a large header": {hops(50) + pad + hops(51), "554 5.4.6"},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			if reply := deliverData(t, e, c.header+"\r\nx\r\n.\r\n"); !strings.HasPrefix(reply, c.want) {
				t.Errorf("reply %q, want %q", reply, c.want)
			}
		})
	}
}
