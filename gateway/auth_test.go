package gateway_test

import (
	"crypto/tls"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/rohrpost/rohrpost/gateway"
)

// submission is a gateway with listeners of all kinds: mx, submission, submissions.
type submission struct {
	*edge
	tls   *tls.Config
	users string
}

func startSubmission(t *testing.T, change func(*gateway.Config)) *submission {
	t.Helper()
	ca := newAuthority(t)
	s := &submission{users: filepath.Join(t.TempDir(), "users"), tls: &tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"}}
	s.add(t, "ann@a.test", "secret")
	s.add(t, "news", "letters", "news.test", "*.news.test")
	s.add(t, "user@testserver", "secretpassword") // chasquid's
	s.edge = startTLS(t, ca.section(t, "mx.test"), func(c *gateway.Config) {
		c.Listeners = []gateway.Listener{
			{Listen: "127.0.0.1:0"},
			{Listen: "127.0.0.1:0", Kind: gateway.KindSubmission},
			{Listen: "127.0.0.1:0", Kind: gateway.KindSubmissions},
		}
		c.Auth = gateway.Auth{Users: s.users, FailureDelay: short, MaxFailures: 100, Lockout: time.Hour}
		if change != nil {
			change(c)
		}
	})
	return s
}

func (s *submission) add(t *testing.T, name, password string, senders ...string) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost) // quick
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	if data, err := os.ReadFile(s.users); err == nil {
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, name+" ") {
				lines = append(lines, line)
			}
		}
	}
	lines = append(lines, name+" "+string(hash)+" "+strings.Join(senders, " ")+"\n")
	writeFile(t, s.users, []byte(strings.Join(lines, "")))
}

// secure is a session inside TLS that has said EHLO.
func (s *submission) secure(t *testing.T) *dialog {
	t.Helper()
	d := s.on(1).dial(t)
	d.starttls(s.tls)
	d.cmd("EHLO c.test", "250-")
	return d
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// RFC 4954: PLAIN and LOGIN, with an initial response and without.
func TestAUTH(t *testing.T) {
	s := startSubmission(t, nil)
	plain := b64("\x00ann@a.test\x00secret")
	for name, steps := range map[string][]step{
		"PLAIN":                           {{"AUTH PLAIN " + plain, "235 2.7.0"}},
		"PLAIN, asked for":                {{"AUTH PLAIN", "334 "}, {plain, "235 2.7.0"}},
		"PLAIN, small letters":            {{"auth plain " + plain, "235 2.7.0"}},
		"PLAIN, the same identity":        {{"AUTH PLAIN " + b64("ann@a.test\x00ann@a.test\x00secret"), "235 2.7.0"}},
		"LOGIN":                           {{"AUTH LOGIN", "334 " + b64("Username:")}, {b64("ann@a.test"), "334 " + b64("Password:")}, {b64("secret"), "235 "}},
		"LOGIN, name at once":             {{"AUTH LOGIN " + b64("ANN@a.test"), "334 " + b64("Password:")}, {b64("secret"), "235 "}},
		"PLAIN, after a wrong one":        {{"AUTH PLAIN " + b64("\x00ann@a.test\x00wrong"), "535 5.7.8"}, {"AUTH PLAIN " + plain, "235 "}},
		"PLAIN, after one was given up":   {{"AUTH PLAIN", "334 "}, {"*", "501 5.7.0"}, {"AUTH PLAIN " + plain, "235 "}},
		"PLAIN, after an overlong answer": {{"AUTH PLAIN", "334 "}, {strings.Repeat("x", 3000), "500 5.5.2"}, {"NOOP", "250 "}, {"AUTH PLAIN " + plain, "235 "}},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.secure(t)
			for _, step := range steps {
				d.cmd(step.send, step.want)
			}
			d.cmd("AUTH PLAIN "+plain, "503 5.5.1")
			before := len(s.spool.all())
			d.cmd("MAIL FROM:<ann@a.test>", "250 ")
			d.cmd("RCPT TO:<b@x.test>", "250 ")
			d.cmd("DATA", "354 ")
			d.cmd("x\r\n.", "250 ")
			reception := s.spool.all()[before].sub.Envelope.GetReception()
			if reception.GetProtocol() != "ESMTPSA" || reception.GetAuthenticatedUser() != "ann@a.test" {
				t.Errorf("reception %v", reception)
			}
		})
	}
}

// What is refused, and how. What is said within AUTH is never a command.
func TestAUTHRefused(t *testing.T) {
	s := startSubmission(t, nil)
	for name, steps := range map[string][]step{
		"wrong password":         {{"AUTH PLAIN " + b64("\x00ann@a.test\x00wrong"), "535 5.7.8"}},
		"unknown user":           {{"AUTH PLAIN " + b64("\x00bob@a.test\x00secret"), "535 5.7.8"}},
		"no user":                {{"AUTH PLAIN " + b64("\x00\x00"), "535 5.7.8"}},
		"as somebody else":       {{"AUTH PLAIN " + b64("news\x00ann@a.test\x00secret"), "535 5.7.8"}},
		"two fields":             {{"AUTH PLAIN " + b64("ann@a.test\x00secret"), "501 5.5.2"}},
		"not base64":             {{"AUTH PLAIN !!!", "501 5.5.2"}},
		"not base64, asked for":  {{"AUTH PLAIN", "334 "}, {"!!!", "501 5.5.2"}, {"NOOP", "250 "}},
		"no mechanism":           {{"AUTH", "501 5.5.4"}},
		"unknown mechanism":      {{"AUTH CRAM-MD5", "504 5.5.4"}},
		"STARTTLS as a response": {{"AUTH LOGIN", "334 "}, {"STARTTLS", "334 "}, {"RSET", "535 5.7.8"}, {"NOOP", "250 "}},
		"BDAT as a response":     {{"AUTH PLAIN", "334 "}, {"BDAT 5 LAST", "501 5.5.2"}, {"NOOP", "250 "}},
		"bare LF as a response":  {{"AUTH PLAIN", "334 "}, {"eA==\nNOOP", "500 5.5.2"}, {"NOOP", "250 "}},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.secure(t)
			for _, step := range steps {
				d.cmd(step.send, step.want)
				if step.send == "eA==\nNOOP" {
					d.want("250 ") // the NOOP behind the bare LF is a command again
				}
			}
			d.cmd("MAIL FROM:<ann@a.test>", "530 5.7.0")
		})
	}
	t.Run("before EHLO", func(t *testing.T) {
		d := s.on(1).dial(t)
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "503 5.5.1")
	})
	t.Run("before EHLO inside TLS", func(t *testing.T) { // RFC 3207, section 4.2
		d := s.on(1).dial(t)
		d.cmd("EHLO c.test", "250-")
		d.starttls(s.tls)
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "503 5.5.1")
		d.cmd("EHLO c.test", "250-")
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "235 ")
	})
	t.Run("within a transaction of the user", func(t *testing.T) {
		d := s.secure(t)
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "235 ")
		d.cmd("MAIL FROM:<ann@a.test>", "250 ")
		d.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "503 5.5.1")
	})
}

// AUTH is offered to users only, and inside TLS only; a password sent in the clear is not even looked at.
func TestAUTHNeedsTLS(t *testing.T) {
	s := startSubmission(t, nil)
	right := "AUTH PLAIN " + b64("\x00ann@a.test\x00secret")
	clear := s.on(1).dial(t)
	if got := clear.cmd("EHLO c.test", "250-"); strings.Contains(got, "AUTH") {
		t.Errorf("offered in the clear: %q", got)
	}
	clear.cmd(right, "538 5.7.11")
	clear.cmd("MAIL FROM:<ann@a.test>", "530 5.7.0")
	clear.starttls(s.tls)
	if got := clear.cmd("EHLO c.test", "250-"); !strings.Contains(got, "\n250-AUTH PLAIN LOGIN\n") {
		t.Errorf("not offered inside TLS: %q", got)
	}
	clear.cmd(right, "235 ")
	implicit := s.on(2).dialRaw(t)
	implicit.secure(s.tls)
	implicit.want("220 ")
	if got := implicit.cmd("EHLO c.test", "250-"); !strings.Contains(got, "\n250-AUTH PLAIN LOGIN\n") {
		t.Errorf("not offered with TLS from the start: %q", got)
	}
	implicit.cmd(right, "235 ")
	mx := s.dial(t)
	mx.starttls(s.tls)
	if got := mx.cmd("EHLO c.test", "250-"); strings.Contains(got, "AUTH") {
		t.Errorf("offered to other hosts: %q", got)
	}
	mx.cmd(right, "502 5.5.1")
}

// A user sends from his own addresses. (RFC 6409, section 6.1.)
func TestSenderIsTheUsers(t *testing.T) {
	s := startSubmission(t, nil)
	for name, c := range map[string]struct{ auth, sender, want string }{
		"the name":           {"ann@a.test\x00secret", "ann@a.test", "250 "},
		"another case":       {"ann@a.test\x00secret", "Ann@A.test", "250 "},
		"somebody else":      {"ann@a.test\x00secret", "bob@a.test", "550 5.7.1"},
		"nobody":             {"ann@a.test\x00secret", "", "250 "},
		"quoted":             {"ann@a.test\x00secret", `"ann"@a.test`, "550 5.7.1"},
		"a domain":           {"news\x00letters", "weekly@news.test", "250 "},
		"below a domain":     {"news\x00letters", "weekly@de.news.test", "250 "},
		"a look-alike":       {"news\x00letters", "weekly@fakenews.test", "550 5.7.1"},
		"behind another one": {"news\x00letters", "weekly@news.test.evil.test", "550 5.7.1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.secure(t)
			d.cmd("AUTH PLAIN "+b64("\x00"+c.auth), "235 ")
			d.cmd("MAIL FROM:<"+c.sender+">", c.want)
		})
	}
}

// A wrong password is answered late, and too many of one address or for one user lock it out, right ones included.
func TestLockout(t *testing.T) {
	s := startSubmission(t, func(c *gateway.Config) {
		c.Auth.MaxFailures = 3
		c.Listeners[1].ProxyFrom = []netip.Prefix{loopback}
	})
	from := func(client string) *dialog {
		d := s.on(1).dialRaw(t)
		d.send(header(t, 1, client+":25"))
		d.want("220 ")
		d.starttls(s.tls)
		d.cmd("EHLO c.test", "250-")
		return d
	}
	wrong, right := "AUTH PLAIN "+b64("\x00ann@a.test\x00wrong"), "AUTH PLAIN "+b64("\x00ann@a.test\x00secret")
	other := "AUTH PLAIN " + b64("\x00news\x00letters")
	d := from("192.0.2.1")
	for range 3 {
		began := time.Now()
		d.cmd(wrong, "535 5.7.8")
		if took := time.Since(began); took < short {
			t.Errorf("answered after %s", took)
		}
	}
	d.cmd(right, "454 4.7.0")
	d.cmd(other, "454 4.7.0")
	from("192.0.2.1").cmd(other, "454 4.7.0")
	from("192.0.2.2").cmd(right, "454 4.7.0")
	from("192.0.2.2").cmd(other, "235 ")
	if strings.Contains(s.logs.String(), "secret") || strings.Contains(s.logs.String(), b64("\x00ann@a.test\x00wrong")) {
		t.Error("a password is in the log")
	}
}

// Users who are added or change their password need no restart.
func TestUsersReload(t *testing.T) {
	s := startSubmission(t, nil)
	try := func(credentials string) string {
		d := s.secure(t)
		defer d.Close()
		d.send("AUTH PLAIN " + b64("\x00"+credentials) + "\r\n")
		return d.reply()
	}
	if got := try("bob@a.test\x00new"); !strings.HasPrefix(got, "535 ") {
		t.Fatalf("before: %q", got)
	}
	s.add(t, "bob@a.test", "new")
	s.add(t, "ann@a.test", "changed")
	waitFor(t, "the new user", func() bool { return strings.HasPrefix(try("bob@a.test\x00new"), "235 ") })
	if got := try("ann@a.test\x00secret"); !strings.HasPrefix(got, "535 ") {
		t.Errorf("the old password: %q", got)
	}
	writeFile(t, s.users, []byte("bob@a.test nonsense\n"))
	waitFor(t, "the warning", func() bool {
		return strings.HasPrefix(try("bob@a.test\x00new"), "235 ") && strings.Contains(s.logs.String(), "the old ones stay")
	})
}
