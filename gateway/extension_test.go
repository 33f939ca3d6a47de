package gateway_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// What EHLO announces, all of it.
func TestAnnounced(t *testing.T) {
	s := startSubmission(t, nil)
	d := s.on(1).dial(t)
	want := func(when string, lines ...string) {
		t.Helper()
		got := strings.Split(d.cmd("EHLO c.test", "250-mx.test Hello"), "\n")[1:]
		for i := range got {
			got[i] = got[i][4:]
		}
		if diff := cmp.Diff(lines, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	common := []string{"LIMITS RCPTMAX=1000", "PIPELINING", "8BITMIME", "ENHANCEDSTATUSCODES", "CHUNKING"}
	want("in the clear", append(append([]string{"STARTTLS"}, common...), "SMTPUTF8", "DSN", "SIZE 50000000")...)
	d.starttls(s.tls)
	want("inside TLS", append(common, "AUTH PLAIN LOGIN", "SMTPUTF8", "DSN", "SIZE 50000000")...)
}

// RFC 3461: the parameters are read and kept.
func TestDSNParameters(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{})
	d := e.dial(t)
	for _, s := range []step{
		{"EHLO c.test", "250-"},
		{"MAIL FROM:<a@a.test> RET=NONE", "501 5.5.4"},
		{"MAIL FROM:<a@a.test> ENVID=a+4", "501 5.5.4"},
		{"MAIL FROM:<a@a.test> ENVID=" + strings.Repeat("x", 101), "501 5.5.4"},
		{"MAIL FROM:<a@a.test> RET=FULL RET=HDRS", "501 5.5.4"},
		{"MAIL FROM:<a@a.test> RET=hdrs ENVID=QQ+2B1", "250 "},
		{"RCPT TO:<b@b.test> NOTIFY=NEVER,SUCCESS", "501 5.5.4"},
		{"RCPT TO:<b@b.test> NOTIFY=SOON", "501 5.5.4"},
		{"RCPT TO:<b@b.test> ORCPT=b@b.test", "501 5.5.4"},
		{"RCPT TO:<b@b.test> ORCPT=rfc822;" + strings.Repeat("x", 494), "501 5.5.4"},
		{"RCPT TO:<b@b.test> NOTIFY=NEVER NOTIFY=FAILURE", "501 5.5.4"},
		{"RCPT TO:<b@b.test> NOTIFY=SUCCESS,failure ORCPT=rfc822;B+2Bb@b.test", "250 "},
		{"RCPT TO:<c@b.test> NOTIFY=NEVER", "250 "},
		{"RCPT TO:<d@b.test>", "250 "},
		{"DATA", "354 "},
		{"x\r\n.", "250 "},
	} {
		d.cmd(s.send, s.want)
	}
	got := e.spool.all()[0].sub.Envelope
	if got.GetDsnReturn() != mailv1.DsnReturn_DSN_RETURN_HEADERS || got.GetEnvelopeId() != "QQ+1" {
		t.Errorf("RET %v, ENVID %q", got.GetDsnReturn(), got.GetEnvelopeId())
	}
	want := []*mailv1.Recipient{
		{
			Address: "b@b.test", OriginalRecipient: "rfc822;B+b@b.test",
			Notify: []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_SUCCESS, mailv1.DsnNotify_DSN_NOTIFY_FAILURE},
		},
		{Address: "c@b.test", Notify: []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_NEVER}},
		{Address: "d@b.test"},
	}
	if diff := cmp.Diff(want, got.GetRecipients(), protocmp.Transform()); diff != "" {
		t.Errorf("recipients (-want +got):\n%s", diff)
	}
}

// DSN is announced to users, relays and our own networks. Strangers get no notifications of success, which might go to somebody
// else; those of failure they would get anyhow.
func TestDSNForStrangers(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: stranger})
	d := e.dial(t)
	if reply := d.cmd("EHLO c.test", "250-"); strings.Contains(reply, "DSN") {
		t.Errorf("a stranger is told %q", reply)
	}
	d.cmd("MAIL FROM:<a@a.test>", "250 ")
	d.cmd("RCPT TO:<b@ours.test> NOTIFY=SUCCESS,FAILURE", "250 ")
	d.cmd("RCPT TO:<c@ours.test> NOTIFY=SUCCESS", "250 ")
	d.cmd("DATA", "354 ")
	d.cmd("x\r\n.", "250 ")
	want := []*mailv1.Recipient{
		{Address: "b@ours.test", Notify: []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_FAILURE}},
		{Address: "c@ours.test", Notify: []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_NEVER}},
	}
	if diff := cmp.Diff(want, e.spool.all()[0].sub.Envelope.GetRecipients(), protocmp.Transform()); diff != "" {
		t.Errorf("recipients (-want +got):\n%s", diff)
	}
	for who, d := range map[string]*dialog{
		"a host of relay.networks": start(t, &fakeSpool{}, startOptions{}).dial(t),
		"a user-to-be":             startSubmission(t, stranger).on(1).dial(t),
	} {
		if reply := d.cmd("EHLO c.test", "250-"); !strings.Contains(reply, "DSN") {
			t.Errorf("%s is told %q", who, reply)
		}
	}
}

// RFC 1870, section 4: a size has up to 20 digits.
func TestHugeSize(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	d.cmd("EHLO c.test", "250-")
	for size, want := range map[string]string{
		"50000000": "250 ", "50000001": "552 5.3.4", "4294967296": "552 5.3.4", "18446744073709551616": "552 5.3.4",
		"99999999999999999999": "552 5.3.4", "123456789012345678901": "501 5.5.4", "4294967296x": "501 5.5.4", "-1": "501 5.5.4", "": "501 5.5.4",
	} {
		d.cmd("MAIL FROM:<a@a.test> SIZE="+size, want)
		d.cmd("RSET", "250 ")
	}
}

// Control characters stand in no command, not even in a name that is only noted.
func TestControlCharacters(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	for _, line := range []string{"HELO a\x01b", "EHLO a\x1b[31m", "EHLO a\x7f", "NOOP \x08", "MAIL FROM:<a\x01@a.test>"} {
		d.cmd(line, "500 5.5.2")
	}
	d.cmd("MAIL FROM:<>", "503 5.5.1")
	d.cmd("HELO a.test", "250 ")
}

// What a client says stands in no reply but as ASCII, and a bad value of a known parameter is no unknown parameter.
func TestRepliesToOddCommands(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	for _, s := range []step{
		{"\xff\xfe\xfd\xfc", "500 5.5.2 "},
		{"HELO \xc3\xa9.test", "250 mx.test Hello ?.test"},
		{"EHLO \xff.test", "250-mx.test Hello ?.test\n"},
		{"MAIL FROM:<a@a.test> AUTH=+ZZ", "501 5.5.4"},
		{"MAIL FROM:<a@a.test> AUTH=+3Cx", "501 5.5.4"},
		{"MAIL FROM:<a@a.test> XAUTH=a", "555 5.5.4"},
	} {
		got := d.cmd(s.send, s.want)
		if strings.ContainsFunc(got, func(r rune) bool { return r >= 0x80 }) {
			t.Errorf("%q is told %q", s.send, got)
		}
	}
}
