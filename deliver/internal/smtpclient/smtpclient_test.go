package smtpclient_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/deliver/internal/smtpclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a connection that says what it was given and keeps what it is told.
type script struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, in string
		code     int
		enhanced string
		text     string
		malform  bool
	}{
		{"one line", "250 2.1.0 fine\r\n", 250, "2.1.0", "fine", false},
		{"no text", "250\r\n", 250, "", "", false},
		{"blank text", "250 \r\n", 250, "", "", false},
		{"code alone", "250 2.1.0\r\n", 250, "2.1.0", "", false},
		{"lines", "550-5.1.1 a\r\n550-b\r\n550 5.1.1 c\r\n", 550, "5.1.1", "a\nb\nc", false},
		{"LF alone", "250 ok\n", 250, "", "ok", false},
		{"other class", "550 2.0.0 no\r\n", 550, "", "2.0.0 no", false},
		{"no enhanced code", "550 5.1 no\r\n", 550, "", "5.1 no", false},
		{"control characters", "550 a\x1b[0m\x00\tb\xff\r\n", 550, "", "a?[0m? b?", false},
		{"UTF-8", "550 n\u00f6\r\n", 550, "", "n\u00f6", false},
		{"long line", "550 " + strings.Repeat("x", 9000) + "\r\n", 550, "", strings.Repeat("x", 2000), false},
		{"refusal without line end", "550 no", 550, "", "no", false},
		{"codes differ", "250-a\r\n550 b\r\n", 0, "", "", true},
		{"no code", "hello\r\n", 0, "", "", true},
		{"code 150", "150 x\r\n", 0, "", "", true},
		{"code 650", "650 x\r\n", 0, "", "", true},
		{"no blank", "250x\r\n", 0, "", "", true},
		{"empty line", "\r\n", 0, "", "", true},
		{"one endless line", "250-" + strings.Repeat("x", 100_000), 0, "", "", true},
		{"endless lines", strings.Repeat("250-x\r\n", 20_000), 0, "", "", true},
		{"success without line end", "250 ok", 0, "", "", false},
		{"half a reply", "550-no\r\n", 0, "", "", false},
		{"nothing", "", 0, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, err := smtpclient.New(&script{in: strings.NewReader(c.in)}).Read(time.Second)
			if c.code == 0 {
				if err == nil || errors.Is(err, smtpclient.ErrReply) != c.malform {
					t.Errorf("got %v, %v", reply, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := reply.Mail(); reply.Code != c.code || got.GetEnhancedCode() != c.enhanced || got.GetText() != c.text {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestCmdIsOneLine(t *testing.T) {
	s := &script{in: strings.NewReader("250 ok\r\n")}
	if _, err := smtpclient.New(s).Cmd(time.Second, "NOOP\r\nDATA"); err == nil || s.out.Len() != 0 {
		t.Errorf("sent %q, %v", s.out.String(), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("250-a\r\n250 b\r\n")
	f.Add("550 5.1.1 \xff")
	f.Fuzz(func(t *testing.T, in string) {
		reply, err := smtpclient.New(&script{in: strings.NewReader(in)}).Read(time.Second)
		if err != nil {
			return
		}
		m := reply.Mail()
		if m.GetCode() < 200 || m.GetCode() > 599 || len(m.GetText()) > 2000 || !utf8.ValidString(m.GetText()) {
			t.Errorf("got %v", m)
		}
		if strings.ContainsFunc(strings.ReplaceAll(m.GetText(), "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not printable: %q", m.GetText())
		}
	})
}

// What a server reads after unstuffing is what was written, with a final CRLF, in however many pieces; and the end mark
// is at the end only (promise P7).
func FuzzBody(f *testing.F) {
	f.Add([]byte(".\r\n..\r\nx"), uint8(1))
	f.Add([]byte("a\r\n.\r\nb\r\n"), uint8(3))
	f.Add([]byte("a\n.\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, content []byte, size uint8) {
		s := &script{}
		body := smtpclient.New(s).Body(time.Second)
		var err error
		for rest := content; len(rest) > 0 && err == nil; {
			n := min(len(rest), int(size)+1)
			_, err = body.Write(rest[:n])
			rest = rest[n:]
		}
		if err == nil {
			err = body.Flush()
		}
		pairs := strings.ReplaceAll(string(content), "\r\n", "")
		if bare := strings.ContainsAny(pairs, "\r\n"); bare != (err != nil) {
			t.Fatalf("%q: bare %v, error %v", content, bare, err)
		}
		if err != nil {
			return
		}
		if err := body.End(); err != nil {
			t.Fatal(err)
		}
		sent, ok := strings.CutSuffix(s.out.String(), ".\r\n")
		if !ok || strings.HasPrefix(sent, ".\r\n") || strings.Contains(sent, "\r\n.\r\n") {
			t.Fatalf("end mark of %q in %q", content, s.out.String())
		}
		var got strings.Builder
		for line := range strings.SplitAfterSeq(sent, "\r\n") {
			got.WriteString(strings.TrimPrefix(line, "."))
		}
		want := string(content)
		if want != "" && !strings.HasSuffix(want, "\r\n") {
			want += "\r\n"
		}
		if got.String() != want {
			t.Fatalf("%q became %q", content, got.String())
		}
	})
}
