package sink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config, rules ...Rule) *Sink {
	t.Helper()
	script, err := NewScript(rules...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Script = script
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a client that looks at octets.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &client{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// dialog sends each line, and reads and compares the reply's last line.
func (c *client) dialog(lines ...string) {
	c.t.Helper()
	for i := 0; i < len(lines); i += 2 {
		if lines[i] != "" {
			c.send(lines[i] + "\r\n")
		}
		if got := c.line(); !strings.HasPrefix(got, lines[i+1]) {
			c.t.Fatalf("%q was answered %q, want %q", lines[i], got, lines[i+1])
		}
	}
}

func (c *client) line() string {
	c.t.Helper()
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("reading a reply: %q %v", line, err)
		}
		if len(line) < 4 || line[3] != '-' {
			return strings.TrimSuffix(line, "\r\n")
		}
	}
}

// rest is all that still comes, and how the connection ended.
func (c *client) rest() (string, error) {
	text, err := io.ReadAll(c.r)
	return string(text), err
}

var envelope = []string{"", "220", "EHLO x", "250", "MAIL FROM:<a@x>", "250", "RCPT TO:<B@y>", "250", "DATA", "354"}

func message(id string) string {
	return string(mail.Sized(2000).Make(nil, id, "a@x", "b@y").Bytes())
}

// Each fault happens on the wire where the rule says.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		rule   Rule
		dialog []string // what goes well before
		send   string   // and then is sent
		rest   string   // what still comes
		broken bool     // by RST
	}{
		{"close in place of the greeting", Rule{At: Connect, Then: Close}, nil, "", "", false},
		{"421 at connect", Rule{At: Connect, Reply: "421 4.3.2 busy", Then: Close}, nil, "", "421 4.3.2 busy\r\n", false},
		{"reset after 7 octets of the EHLO reply", Rule{At: Hello, Reply: "250 one\ntwo", Octets: 7, Then: Reset}, envelope[:2], "EHLO x\r\n", "250-one", true},
		{"reset at MAIL", Rule{At: Mail, Then: Reset}, envelope[:4], "MAIL FROM:<a@x>\r\n", "", true},
		{"garbage at RCPT", Rule{At: Rcpt, Recipient: "b@*", Then: Garbage}, envelope[:6], "RCPT TO:<b@y>\r\n", strings.Repeat("\x00\xff\rX", 64), false},
		{"close in place of 354", Rule{At: Data, Then: Close}, envelope[:8], "DATA\r\n", "", false},
		{"reset after 1000 octets of content", Rule{At: Content, Octets: 1000, Then: Reset}, envelope, message("1")[:1100], "", true},
		{"reset before the content", Rule{At: Content, Then: Reset}, envelope[:8], "DATA\r\n", "354 Go ahead\r\n", true},
		{"reset at the first octet", Rule{At: Content, Octets: 1, Then: Reset}, envelope, "S", "", true},
		{"reset within a line", Rule{At: Content, Octets: 15, Then: Reset}, envelope, "Subject: x\r\nabc", "", true},
		{"reset after a dot that was doubled", Rule{At: Content, Octets: 3, Then: Reset}, envelope, "..\r\n", "", true},
		{"reset within a chunk", Rule{At: Content, Octets: 5, Then: Reset}, envelope[:8], "BDAT 100 LAST\r\nabcde", "", true},
		{"reset before a chunk", Rule{At: Content, Then: Reset}, envelope[:8], "BDAT 100 LAST\r\n", "", true},
		{"no reply to the dot", Rule{At: Dot, Then: Close}, envelope, message("1") + ".\r\n", "", false},
		{"half a reply to the dot", Rule{At: Dot, Reply: "250 2.0.0 Ok", Octets: 3, Then: Close}, envelope, message("1") + ".\r\n", "250", false},
		{"refusal of one id", Rule{At: Dot, ID: "1", Reply: "554 5.6.0 No", Then: Close}, envelope, message("1") + ".\r\n", "554 5.6.0 No\r\n", false},
		{"close at QUIT", Rule{At: Quit, Then: Close}, envelope[:2], "QUIT\r\n", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, Config{}, c.rule)
			cl := dial(t, s.SMTP())
			cl.dialog(c.dialog...)
			cl.send(c.send)
			rest, err := cl.rest()
			if rest != c.rest {
				t.Errorf("then came %q, want %q", rest, c.rest)
			}
			if broken := errors.Is(err, syscall.ECONNRESET); broken != c.broken {
				t.Errorf("the connection ended with %v; broken should be %t", err, c.broken)
			}
		})
	}
}

func TestSilenceAfterTheDot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{Ledger: l}, Rule{At: Dot, Then: Silence, Times: 1})
	c := dial(t, s.SMTP())
	c.dialog(envelope...)
	c.send(message("1") + ".\r\n")
	if err := s.Wait(t.Context(), 1); err != nil { // it has the message
		t.Fatal(err)
	}
	_ = c.conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if rest, err := c.rest(); rest != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the dot came %q %v, want nothing at all", rest, err)
	}
	arrivals, err := ledger.Read[ledger.Arrival](path)
	if err != nil || len(arrivals) != 1 || arrivals[0].Reply != 0 || arrivals[0].ID != "1" {
		t.Errorf("%+v, %v", arrivals, err)
	}
}

func TestDelay(t *testing.T) {
	s := start(t, Config{}, Rule{At: Rcpt, Delay: Duration(150 * time.Millisecond)})
	c := dial(t, s.SMTP())
	begun := time.Now()
	c.dialog(envelope...)
	if took := time.Since(begun); took < 150*time.Millisecond {
		t.Errorf("the dialogue took %s", took)
	}
}

// A rule that only waits in the middle of the content leaves the content whole, wherever that is.
func TestWaitAtAnyOctet(t *testing.T) {
	const content = ".a\r\n..b\r\n.\rc\r\n\r\n."
	text := string(mail.Wrap([]byte("X: y\r\n\r\n"+content+"\r\n")).Make(nil, "1", "a@x", "b@y").Bytes())
	stuffed := strings.ReplaceAll(text, "\r\n.", "\r\n..") + ".\r\n"
	for octets := range len(text) + 1 {
		s := start(t, Config{}, Rule{At: Content, Octets: octets, Delay: Duration(time.Nanosecond)})
		c := dial(t, s.SMTP())
		c.dialog(envelope...)
		c.send(stuffed)
		c.dialog("", "250")
		st := s.Stats()
		delete(st.Faults, "a bare CR")
		if st.Distinct != 1 || len(st.Faults) != 0 || st.Octets != int64(len(text)) {
			t.Errorf("after octet %d of %d: %+v", octets, len(text), st)
		}
	}
}

// What a rule refuses at MAIL is no transaction, for a client that pipelines too.
func TestRefusedMail(t *testing.T) {
	s := start(t, Config{}, Rule{At: Mail, Sender: "bad@*", Reply: "550 5.7.1 no"})
	c := dial(t, s.SMTP())
	c.dialog("", "220", "EHLO x", "250")
	c.send("MAIL FROM:<bad@x>\r\nRCPT TO:<b@y>\r\nDATA\r\n")
	c.dialog("", "550", "", "503", "", "554")
	c.dialog("MAIL FROM:<good@x>", "250", "RCPT TO:<b@y>", "250", "DATA", "354")
}

func TestLMTPAnswersForEachRecipient(t *testing.T) {
	s := start(t, Config{LMTP: "127.0.0.1:0"}, Rule{At: Dot, Recipient: "c@y", Reply: "550 5.1.1 no"})
	c := dial(t, s.LMTP())
	c.dialog("", "220", "LHLO x", "250", "MAIL FROM:<a@x>", "250", "RCPT TO:<b@y>", "250", "RCPT TO:<c@y>", "250", "DATA", "354",
		message("1")+".", "250", "", "550", "NOOP", "250")
	if st := s.Stats(); st.Arrivals != 2 || st.Distinct != 1 {
		t.Errorf("%+v", st)
	}
}

func TestHTTP(t *testing.T) {
	s := start(t, Config{HTTP: "127.0.0.1:0"},
		Rule{At: Dot, ID: "2", Reply: "503 busy"}, Rule{At: Dot, ID: "3", Then: Reset}, Rule{At: Content, Recipient: "slow@y", Octets: 10, Then: Close})
	post := func(id, recipient string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.HTTP()+"/in", strings.NewReader(message(id)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(HTTPSender, "a@x")
		req.Header.Add(HTTPRecipient, recipient)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	for _, c := range []struct {
		id, recipient string
		status        int
		err           string
	}{{"1", "b@y", 200, ""}, {"2", "b@y", 503, ""}, {"3", "b@y", 0, "reset"}, {"4", "slow@y", 0, "EOF"}} {
		status, err := post(c.id, c.recipient)
		if status != c.status || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d %v, want %d %s", c.id, status, err, c.status, c.err)
		}
	}
	if st := s.Stats(); st.Arrivals != 3 || st.Distinct != 2 { // the sink took 3, and its reply was lost
		t.Errorf("%+v", st)
	}
}

func TestRulesCount(t *testing.T) {
	s, err := NewScript(Rule{At: Rcpt, Skip: 1, Every: 2, Times: 2, Reply: "450 x"})
	if err != nil {
		t.Fatal(err)
	}
	var acted []int
	for i := 1; i <= 9; i++ {
		if s.find(Rcpt, situation{}) != nil {
			acted = append(acted, i)
		}
	}
	if fmt.Sprint(acted) != "[3 5]" {
		t.Errorf("it acted on %v, want [3 5]", acted)
	}
}

func TestScriptFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`[{"at":"dot","recipient":"*@slow.test","delay":"1.5s","reply":"451 4.4.1 later","times":3}]`)
	s, err := ReadScript(path)
	if err != nil || len(s.rules) != 1 || s.rules[0].Delay != Duration(1500*time.Millisecond) {
		t.Errorf("%+v, %v", s, err)
	}
	for text, want := range map[string]string{
		`[{"at":"nowhere","then":"close"}]`:              "no phase",
		`[{"at":"dot"}]`:                                 "does nothing",
		`[{"at":"dot","then":"explode"}]`:                "unknown",
		`[{"at":"rcpt","id":"x","then":"close"}]`:        "at dot only",
		`[{"at":"mail","recipient":"x","then":"close"}]`: "not known",
		`[{"at":"dot","reply":"later"}]`:                 "no code",
		`[{"at":"dot","recipient":"[","then":"close"}]`:  "pattern",
		`[{"at":"dot","then":"certificate"}]`:            "starttls",
		`[{"at":"dot","then":"close","octets":-1}]`:      "negative",
		`[{"at":"content","reply":"450 x"}]`:             "nothing to reply",
		`[{"at":"dot","wen":1}]`:                         "unknown field",
		`[{"at":"dot","reply":"250x"}]`:                  "no code",
		`[{"at":"dot","reply":"250 a\r\n250 b"}]`:        "a CR",
		`[{"at":"dot","reply":"250 a","octets":1}]`:      "give then",
		`[{"at":"dot","delay":"-2s"}]`:                   "negative",
		`[{"at":"dot","protocol":"stmp","delay":"2s"}]`:  "protocol",
		`[{"at":"dot","then":"close"}] []`:               "more after",
		`[{"at":"dot","then":"close"}] x`:                "more after",
		`null`:                                           "no list",
		``:                                               "EOF",
	} {
		write(text)
		if _, err := ReadScript(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	s := start(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
}

func TestStray(t *testing.T) {
	for text, want := range map[string]string{
		"a\r\nb\r\n": "", "a\nb\r\n": "a bare LF", "a\rb\r\n": "a bare CR", "\n": "a bare LF", "a\r\r\n": "a bare CR", "\r\n\r\n": "",
	} {
		c := &session{r: bufio.NewReaderSize(strings.NewReader(text+".\r\n"), 16), raw: nopConn{}}
		fault, err := c.readLines(new(bytes.Buffer), nil)
		if fault != want || err != nil {
			t.Errorf("%q has %q %v, want %q", text, fault, err, want)
		}
	}
}

type nopConn struct{ net.Conn }

func (nopConn) SetReadDeadline(time.Time) error { return nil }

// Patterns are matched whatever the case of their letters, as addresses are.
func TestPatternInCapitals(t *testing.T) {
	s := start(t, Config{}, Rule{At: Rcpt, Recipient: "*@BUSY.test", Reply: "450 4.2.1 later"})
	dial(t, s.SMTP()).dialog("", "220", "MAIL FROM:<a@x>", "250", "RCPT TO:<b@Busy.TEST>", "450", "RCPT TO:<b@y>", "250")
}
