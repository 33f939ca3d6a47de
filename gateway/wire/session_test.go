package wire

import (
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/emersion/go-smtp"
)

// keeper is a backend that keeps content.
type keeper struct{ kept []string }

func (k *keeper) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &keeping{keeper: k, conn: c}, nil
}

type keeping struct {
	*keeper
	conn *smtp.Conn
}

func (k *keeping) Reset()                               { /* nothing to reset */ }
func (k *keeping) Logout() error                        { return nil }
func (k *keeping) Mail(string, *smtp.MailOptions) error { return nil }
func (k *keeping) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (k *keeping) Data(io.Reader) error {
	body := k.conn.Conn().(*Conn).Body()
	content, err := io.ReadAll(NewContent(body, ContentOptions{MaxLine: 1000, MaxSize: 1 << 16}))
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: err.Error()}
	}
	k.kept = append(k.kept, string(content))
	return nil
}

// oneListener gives a server its one connection.
type oneListener struct {
	conns chan net.Conn
	once  sync.Once
}

func newOneListener(c net.Conn) *oneListener {
	l := &oneListener{conns: make(chan net.Conn, 1)}
	l.conns <- c
	return l
}

func (l *oneListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

var replyLine = regexp.MustCompile(`^[2-5][0-9][0-9][ -][^\r\n]*\r\n$`)

// play runs a session in which the client sends raw and closes.
func play(t *testing.T, r io.Reader) (kept []string, replies string) {
	c, s := scripted(r)
	k := &keeper{}
	server := smtp.NewServer(k)
	server.Domain, server.MaxLineLength, server.EnableSMTPUTF8 = "mx.test", 0, true
	l := newOneListener(c)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	<-c.owner.(*owner).closed
	_ = server.Close()
	<-served
	for _, content := range k.kept {
		if strings.ContainsAny(strings.ReplaceAll(content, "\r\n", ""), "\r\n") {
			t.Errorf("kept %q", content)
		}
	}
	for line := range strings.Lines(s.replies.String()) {
		if !replyLine.MatchString(line) {
			t.Errorf("bad reply line %q", line)
		}
	}
	return k.kept, s.replies.String()
}

const opening = "EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\n"

var sessionSeeds = []string{
	opening + "DATA\r\nx\r\n.\r\nQUIT\r\n",
	opening + "BDAT 3\r\nx\r\nNOOP\r\nBDAT 0 LAST\r\n" + opening + "DATA\r\na\nb\r\n.\r\nNOOP\r\n",
	opening + "BDAT 3\r\nx\r\nRSET\r\n" + opening + "BDAT 3 LAST\r\ny\r\n",
	opening + "BDAT 3\r\na\nb" + "BDAT 3 LAST\r\ny\r\n",
	opening + "BDAT 3\r\nx\r\nEHLO d\r\nDATA\r\n",
	"BDAT 5 LAST\r\nNOOP\nSTARTTLS\r\nAUTH PLAIN\r\nGET / HTTP/1.0\r\n",
	"NOOP\n\nx\r\n\x00\r\n" + strings.Repeat("x", 5000) + "\r\nQUIT\r\n",
	opening + "DATA\r\n.\r\n" + opening + "DATA\r\n.\rX\r\n.\r\nVRFY a\r\n",
}

// FuzzSession: whatever a client sends, the session ends with the connection, replies are well-formed, and how the octets
// are cut into packets makes no difference.
func FuzzSession(f *testing.F) {
	for _, raw := range sessionSeeds {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		kept, replies := play(t, strings.NewReader(raw))
		kept1, replies1 := play(t, iotest.OneByteReader(strings.NewReader(raw)))
		if strings.Join(kept, "|") != strings.Join(kept1, "|") || replies != replies1 {
			t.Errorf("in one: %q\n%s\noctet by octet: %q\n%s", kept, replies, kept1, replies1)
		}
	})
}

// A chunk that is skipped, of a refused BDAT, does not use up the time of the next message.
func TestSkippedChunkTakesNoTime(t *testing.T) {
	c, _ := scripted(iotest.OneByteReader(strings.NewReader("BDAT 3 LAST\r\nabcNOOP\r\n")))
	p := make([]byte, 100)
	for _, want := range []string{"DATA\r\n", "NOOP\r\n"} {
		if n, err := c.Read(p); err != nil || string(p[:n]) != want {
			t.Fatalf("the library reads %q, %v, want %q", p[:n], err, want)
		}
	}
	if c.pace != (pace{}) {
		t.Errorf("the next message begins with %+v", c.pace)
	}
}
