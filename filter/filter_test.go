package filter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/filter"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// zone is a DNS made of maps. Names are in lower case without final dot; addresses are keyed by their text form.
type zone struct {
	txt   map[string][]string
	mx    map[string][]*net.MX
	ip    map[string][]net.IPAddr
	ptr   map[string][]string
	cname map[string]string
	err   map[string]error // of every look-up of a name that has no records of the type
	hang  map[string]bool  // look-ups that end only with their context
}

func (z *zone) find(ctx context.Context, name string, found bool) error {
	switch {
	case z.hang[name]:
		<-ctx.Done()
		return ctx.Err()
	case found:
		return nil
	case z.err[name] != nil:
		return z.err[name]
	}
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (z *zone) canonical(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	for range 8 {
		target, ok := z.cname[name]
		if !ok {
			break
		}
		name = target
	}
	return name
}

func (z *zone) LookupTXT(ctx context.Context, name string) ([]string, error) {
	name = z.canonical(name)
	return z.txt[name], z.find(ctx, name, len(z.txt[name]) > 0)
}

func (z *zone) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	name = z.canonical(name)
	return z.mx[name], z.find(ctx, name, len(z.mx[name]) > 0)
}

func (z *zone) LookupIPAddr(ctx context.Context, name string) ([]net.IPAddr, error) {
	name = z.canonical(name)
	return z.ip[name], z.find(ctx, name, len(z.ip[name]) > 0)
}

func (z *zone) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	return z.ptr[addr], z.find(ctx, addr, len(z.ptr[addr]) > 0)
}

var errServfail = errors.New("server failure")

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newFilter(t *testing.T, z filter.Resolver, change func(*filter.Config)) *filter.Filter {
	t.Helper()
	cfg := filter.DefaultConfig()
	cfg.AuthservID = "mx.rohr.example"
	if change != nil {
		change(&cfg)
	}
	if z == nil {
		z = &zone{}
	}
	f, err := filter.New(cfg, filter.Options{Resolver: z, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const plain = "From: Ann <ann@a.example>\r\nTo: bob@b.example\r\nSubject: Hi\r\n\r\nHello\r\n"

// input is a message from ann@a.example at 192.0.2.1 to some recipients.
func input(content string, recipients ...string) filter.Input {
	env := &mailv1.Envelope{
		Sender: "ann@a.example",
		Reception: &mailv1.Reception{
			ClientIp: "192.0.2.1", Helo: "mail.a.example", Gateway: "gw.rohr.example", Protocol: "ESMTP",
		},
	}
	if len(recipients) == 0 {
		recipients = []string{"bob@b.example"}
	}
	for _, r := range recipients {
		env.Recipients = append(env.Recipients, &mailv1.Recipient{Address: r})
	}
	return filter.Input{
		ID: "0193-test", Envelope: env, Parsed: &mailv1.ParsedMessage{Subject: "Hi"}, Size: int64(len(content)),
		Content: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
	}
}

func judge(t *testing.T, f *filter.Filter, in filter.Input) *mailv1.Verdict {
	t.Helper()
	v, err := f.Judge(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.GetRecipients()) != len(in.Envelope.GetRecipients()) {
		t.Fatalf("%d verdicts for %d recipients", len(v.GetRecipients()), len(in.Envelope.GetRecipients()))
	}
	return v
}

// results lists what a check found, as "result property".
func results(v *mailv1.Verdict, check string) []string {
	var found []string
	for _, r := range v.GetResults() {
		if r.GetCheck() == check {
			found = append(found, strings.TrimSpace(r.GetResult()+" "+r.GetProperty()))
		}
	}
	return found
}

// corpus reads a file of the shared corpus, which lies beside the repository.
func corpus(t *testing.T, name string) []byte {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Skip("no go.work above: the corpus cannot be found")
		}
		root = filepath.Dir(root)
	}
	data, err := os.ReadFile(filepath.Join(root, "..", "shared", "corpus", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the corpus file %s is absent", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func crlf(b []byte) string {
	return string(bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n")))
}

// A message whose content can't be read is not judged: the job is given out again.
func TestContentFails(t *testing.T) {
	broken := errors.New("stream broke")
	key := newKey(t)
	for name, content := range map[string]func() (io.ReadCloser, error){
		"opening": func() (io.ReadCloser, error) { return nil, broken },
		"header":  func() (io.ReadCloser, error) { return io.NopCloser(failing{strings.NewReader("From: a"), broken}), nil },
		"body, one signature": func() (io.ReadCloser, error) {
			return io.NopCloser(failing{strings.NewReader(key.sign(t, plain)), broken}), nil
		},
		"body, two signatures": func() (io.ReadCloser, error) {
			return io.NopCloser(failing{strings.NewReader(key.sign(t, key.sign(t, plain))), broken}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(plain)
			in.Content = content
			if v, err := newFilter(t, key.zone(), nil).Judge(t.Context(), in); !errors.Is(err, broken) {
				t.Errorf("got %v, %v; want the error of the content", v, err)
			}
		})
	}
}

// failing gives what r has and then an error.
type failing struct {
	r   io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func TestEndOfJob(t *testing.T) {
	z := &zone{hang: map[string]bool{"a.example": true}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if v, err := newFilter(t, z, nil).Judge(ctx, input(plain)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v; want the end of the context, not a verdict", v, err)
	}
}

func TestNoRecipients(t *testing.T) {
	in := input(plain)
	in.Envelope.Recipients = nil
	if v, err := newFilter(t, nil, nil).Judge(t.Context(), in); err == nil {
		t.Errorf("got %v, want an error", v)
	}
}

// Work waits while others are at work, and gives up with its context.
func TestMaxConcurrent(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	f := newFilter(t, nil, func(c *filter.Config) { c.MaxConcurrent = 1 })
	first := input(plain)
	first.Content = func() (io.ReadCloser, error) {
		close(entered)
		<-release
		return io.NopCloser(strings.NewReader(plain)), nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.Judge(context.WithoutCancel(t.Context()), first)
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := f.Judge(ctx, input(plain)); !errors.Is(err, context.Canceled) {
		t.Errorf("second: got %v, %v; want it to wait for a place", v, err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	judge(t, f, input(plain))
}
