package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a client that sends octets and ends.
type script struct {
	io.Reader
	replies bytes.Buffer
}

func (s *script) Write(p []byte) (int, error)      { return s.replies.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func scripted(r io.Reader) (*Conn, *script) {
	s := &script{Reader: r}
	return New(s, &Options{
		Hostname: "mx.test", CommandTimeout: time.Minute, DataTimeout: time.Minute, DataTotalTimeout: time.Hour,
		WriteTimeout: time.Minute,
	}, &owner{closed: make(chan struct{})}), s
}

// owner is told when its connection has closed.
type owner struct{ closed chan struct{} }

func (*owner) Begin() string                    { return "" }
func (*owner) Secured(tls.ConnectionState, int) { panic("no TLS here") }
func (*owner) Notifies() bool                   { return true }
func (*owner) Early()                           {}
func (*owner) Failed(error)                     { panic("no TLS here") }
func (o *owner) Closed()                        { close(o.closed) }

// readBody takes octets as content of DATA, in pieces as a reader gives them.
func readBody(r io.Reader, piece int) (string, error) {
	c, _ := scripted(r)
	b := &dataBody{c: c}
	var out strings.Builder
	_, err := io.CopyBuffer(&out, struct{ io.Reader }{b}, make([]byte, piece))
	return out.String(), err
}

// referenceBody is what RFC 5321, section 4.5.2, says, in the plainest form.
func referenceBody(raw string) (string, bool) {
	content, _, ok := strings.Cut("\r\n"+raw, "\r\n.\r\n")
	if !ok {
		return "", false
	}
	content = strings.ReplaceAll(content+"\r\n", "\r\n.", "\r\n")
	return strings.TrimPrefix(content, "\r\n"), true
}

var bodySeeds = []string{
	".\r\n", "x\r\n.\r\n", "\r\n.\r\n", "..\r\n.\r\n", "x\r\r\n.\r\n", ".\rX\r\n.\r\n", "a\n.\n\r\n.\r\n", ".\r\r\n.\r\n",
	"a\r\n..\r\n.b\r\n.\r\nRSET\r\n", "\r\r\n.\r\n", ".\n.\r\n\r\n.\r\n", "no end", "\r\n.\r", "..\r\r\n.\r\n",
}

func checkBody(t *testing.T, raw string) {
	want, ends := referenceBody(raw)
	for name, r := range map[string]io.Reader{
		"whole":        strings.NewReader(raw),
		"octet by one": iotest.OneByteReader(strings.NewReader(raw)),
	} {
		for _, piece := range []int{1, 3, 4096} {
			got, err := readBody(r, piece)
			if ends && (err != nil || got != want) {
				t.Errorf("%s, pieces of %d: %q, %v, want %q", name, piece, got, err, want)
			}
			if !ends && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, pieces of %d: %v, want an unexpected end", name, piece, err)
			}
			if s, ok := r.(io.Seeker); ok {
				_, _ = s.Seek(0, io.SeekStart)
			} else {
				r = iotest.OneByteReader(strings.NewReader(raw))
			}
		}
	}
}

func TestBody(t *testing.T) {
	for _, raw := range bodySeeds {
		t.Run(raw, func(t *testing.T) { checkBody(t, raw) })
	}
}

func FuzzBody(f *testing.F) {
	for _, raw := range bodySeeds {
		f.Add(raw)
	}
	f.Fuzz(checkBody)
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		name, raw, want string
		normalize       bool
		fault           ContentErrorKind
		offset          int64
	}{
		{name: "clean", raw: "a\r\n\r\nb\r\n", want: "a\r\n\r\nb\r\n"},
		{name: "empty"},
		{name: "no CRLF at the end", raw: "a\r\nb", want: "a\r\nb\r\n"},
		{name: "bare CR", raw: "a\rb\r\n", fault: BareCR, offset: 1},
		{name: "bare CR at the end", raw: "a\r\nb\r", fault: BareCR, offset: 4},
		{name: "CR CR LF", raw: "\r\r\n", fault: BareCR},
		{name: "bare LF", raw: "a\r\n\n", fault: BareLF, offset: 3},
		{name: "LF CR", raw: "\n\r", fault: BareLF},
		{name: "longest line", raw: "0123456789\r\n", want: "0123456789\r\n"},
		{name: "long line", raw: "a\r\n0123456789a\r\n", fault: LongLine, offset: 14},
		{name: "too big", raw: "0123456789\r\n0123456789\r\n0\r\n", fault: OverMaxSize, offset: 25},
		{name: "normalized", raw: "a\nb\rc\r\r\nd\n\n\r", want: "a\r\nb\r\nc\r\n\r\nd\r\n\r\n\r\n", normalize: true},
		{name: "normalized, long line", raw: "0123456789a\n", fault: LongLine, offset: 11, normalize: true},
	} {
		for _, piece := range []int{1, 2, 512} {
			t.Run(c.name, func(t *testing.T) {
				content := NewContent(iotest.OneByteReader(strings.NewReader(c.raw)), ContentOptions{
					Normalize: c.normalize, MaxLine: 10, MaxSize: 25,
				})
				var out strings.Builder
				_, err := io.CopyBuffer(&out, struct{ io.Reader }{content}, make([]byte, piece))
				var fault *ContentError
				switch errors.As(err, &fault) {
				case true:
					if fault.Kind != c.fault || fault.Offset != c.offset {
						t.Errorf("%v, want %s at %d", fault, c.fault, c.offset)
					}
				case false:
					if err != nil || c.fault != "" || out.String() != c.want || content.Size() != int64(len(c.want)) {
						t.Errorf("%q, %v, want %q, %s", out.String(), err, c.want, c.fault)
					}
				}
			})
		}
	}
}

func FuzzContent(f *testing.F) {
	for _, raw := range bodySeeds {
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Fuzz(func(t *testing.T, raw string, normalize bool) {
		content := NewContent(strings.NewReader(raw), ContentOptions{Normalize: normalize, MaxLine: 1 << 16, MaxSize: 1 << 20})
		got, err := io.ReadAll(content)
		var fault *ContentError
		if errors.As(err, &fault) {
			if normalize && (fault.Kind == BareCR || fault.Kind == BareLF) {
				t.Errorf("%v in normalized content", fault)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := raw
		if normalize {
			want = strings.ReplaceAll(want, "\r\n", "\n")
			want = strings.ReplaceAll(want, "\r", "\n")
			want = strings.ReplaceAll(want, "\n", "\r\n")
		}
		if want != "" && !strings.HasSuffix(want, "\r\n") {
			want += "\r\n"
		}
		if rest := strings.ReplaceAll(string(got), "\r\n", ""); strings.ContainsAny(rest, "\r\n") || string(got) != want {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
	})
}
