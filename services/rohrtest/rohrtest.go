// Package rohrtest starts a whole Rohrpost pipeline for a test: on free ports of the loopback interface, with a
// PostgreSQL and a folder of its own, and with a receiver for its spans. It is made for tests of Rohrpost and for those
// of applications that send mail through it.
//
//	p := rohrtest.Start(t)
//	id := p.Send("ann@a.example", []string{"bob@b.example"}, mail)
//	message := p.WaitEnded(id)
//	caught := p.Mail("bob@b.example")
//
// Every method fails the test where it can't do what it says, within [Patience].
package rohrtest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/smtp"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
)

// Patience bounds every wait: many times what a healthy pipeline needs on a busy machine.
const Patience = 3 * time.Minute

// Pipeline is a running pipeline.
type Pipeline struct {
	t       testing.TB
	running services.Running
	conn    *grpc.ClientConn
	spans   *Receiver
	mail    string
	log     *lockedBuffer
	cfg     *services.Config

	procs *processes // nil where everything runs in the test's process
}

// Main runs the tests of a package and stops the PostgreSQL that they share; a pipeline on a folder of its own
// ([WithData]) or of processes has a server of its own. Call it in TestMain, and exit with its result.
func Main(m *testing.M) int { return pgservertest.Main(m) }

// Option changes how a pipeline is started.
type Option func(*options)

type options struct {
	data      string
	configure []func(*services.Config)
	binary    string
	untraced  bool
	profiled  bool
}

// WithConfig changes the configuration before the start.
func WithConfig(change func(*services.Config)) Option {
	return func(o *options) { o.configure = append(o.configure, change) }
}

// WithData runs on a folder that was made by [TempDir], as to start again on what an earlier pipeline left.
func WithData(dir string) Option { return func(o *options) { o.data = dir } }

// WithoutTraces records no spans, as a pipeline does where no OTEL_ variable is set.
func WithoutTraces() Option { return func(o *options) { o.untraced = true } }

// WithProcesses runs the six services as operating-system processes of a built binary, with mutual TLS between them, in
// place of one process.
func WithProcesses(binary string) Option { return func(o *options) { o.binary = binary } }

// WithProfiles lets each process of [WithProcesses] show its profiles: see [Pipeline.Profiles].
func WithProfiles() Option { return func(o *options) { o.profiled = true } }

// Start starts a pipeline and stops it when the test ends. The folder is removed then, the log is shown where the test
// failed.
func Start(t testing.TB, opts ...Option) *Pipeline {
	t.Helper()
	p, stop := StartUntil(t, opts...)
	t.Cleanup(stop)
	return p
}

// StartUntil is Start for tests that stop the pipeline themselves, by the returned function. It may be called twice.
func StartUntil(t testing.TB, opts ...Option) (*Pipeline, func()) {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	cfg := services.DefaultConfig()
	if o.data == "" {
		o.data = TempDir(t)
		if o.binary == "" {
			// Fast and not durable: what must outlive a crash is tested on a folder or on processes.
			cfg.Spool.Database, cfg.Spool.Unsafe = pgservertest.NewDatabase(t), true
		}
	}
	p := &Pipeline{t: t, spans: newReceiver(t), log: &lockedBuffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the pipeline:\n%s", p.log.tail())
		}
	})
	cfg.Gateway.Listeners[0].Listen, cfg.Console.Listen, cfg.Spool.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Spool.HTTPListen = "127.0.0.1:0"
	services.UpConfig(&cfg, o.data)
	for _, change := range o.configure {
		change(&cfg)
	}
	p.mail, p.cfg = filepath.Join(o.data, "mail"), &cfg
	if o.binary != "" {
		return p, sync.OnceFunc(p.startProcesses(&cfg, &o))
	}
	return p, sync.OnceFunc(p.startHere(&cfg, &o))
}

// TempDir makes a folder that a private PostgreSQL can reach even as root, and removes it when the test ends.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rohrtest-") //nolint:usetesting // root's t.TempDir is closed to the user of PostgreSQL
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the user of PostgreSQL must get through
		t.Fatal(err)
	}
	return dir
}

// startHere runs `up` in the test's process and returns what stops it.
func (p *Pipeline) startHere(cfg *services.Config, o *options) func() {
	p.t.Helper()
	logger := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	env := services.Env{
		Version: "test",
		Logger:  func(service string) *slog.Logger { return logger.With("service", service) },
		Telemetry: func(ctx context.Context, service string) (trace.TracerProvider, func(context.Context) error, error) {
			if o.untraced {
				return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
			}
			return p.spans.provider(ctx, service)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan services.Running, 1), make(chan error, 1)
	go func() {
		done <- services.Up(ctx, env, cfg, services.UpOptions{Data: o.data, Ready: func(r services.Running) { ready <- r }})
	}()
	select {
	case p.running = <-ready:
	case err := <-done:
		cancel()
		p.t.Fatalf("starting the pipeline: %v\n%s", err, p.log.tail())
	case <-time.After(Patience):
		cancel()
		p.t.Fatalf("the pipeline did not start within %s\n%s", Patience, p.log.tail())
	}
	p.connect(process.DialOptions{Token: p.running.Token})
	return func() {
		_ = p.conn.Close()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				p.t.Errorf("stopping the pipeline: %v", err)
			}
		case <-time.After(2 * Patience):
			p.t.Error("the pipeline did not stop")
		}
	}
}

func (p *Pipeline) connect(opts process.DialOptions) {
	p.t.Helper()
	conn, err := process.Dial(p.running.GRPC, opts)
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn = conn
}

// SMTP is the host:port of the gateway.
func (p *Pipeline) SMTP() string { return p.running.SMTP }

// Console is the host:port of the web console.
func (p *Pipeline) Console() string { return p.running.HTTP }

// Running tells where everything is.
func (p *Pipeline) Running() services.Running { return p.running }

// Database is the URL of the pipeline's database.
func (p *Pipeline) Database() string { return p.cfg.Spool.Database }

// Conn is a connection to the spool that may call every service.
func (p *Pipeline) Conn() *grpc.ClientConn { return p.conn }

// Admin is the operators' client.
func (p *Pipeline) Admin() adminv1.AdminServiceClient { return adminv1.NewAdminServiceClient(p.conn) }

// Log is what the pipeline has logged so far.
func (p *Pipeline) Log() string { return p.log.String() }

var queuedAs = regexp.MustCompile(`queued as ([0-9a-f-]{36})`)

// Send sends a mail as a plain SMTP client and returns its id. Every octet is sent as it is; only a final CRLF is added
// where it is missing.
func (p *Pipeline) Send(from string, to []string, mail []byte) string {
	p.t.Helper()
	id, err := p.TrySend(from, to, mail)
	if err != nil {
		p.t.Fatalf("sending: %v", err)
	}
	return id
}

// TrySend is Send for tests that expect refusals.
func (p *Pipeline) TrySend(from string, to []string, mail []byte) (string, error) {
	c, err := smtp.Dial(p.running.SMTP)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // after Quit there is nothing left to close
	return p.SendOn(c, from, to, mail)
}

// SendOn sends a mail on an open session.
func (p *Pipeline) SendOn(c *smtp.Client, from string, to []string, mail []byte) (string, error) {
	if err := c.Mail(from); err != nil {
		return "", err
	}
	for _, address := range to {
		if err := c.Rcpt(address); err != nil {
			return "", err
		}
	}
	// net/smtp hides the text of the last reply, in which the id stands.
	id, err := c.Text.Cmd("DATA")
	if err != nil {
		return "", err
	}
	c.Text.StartResponse(id)
	defer c.Text.EndResponse(id)
	if _, _, err := c.Text.ReadResponse(354); err != nil {
		return "", err
	}
	if _, err := c.Text.W.Write(dotStuffed(mail)); err != nil {
		return "", err
	}
	if err := c.Text.W.Flush(); err != nil {
		return "", err
	}
	_, text, err := c.Text.ReadResponse(250)
	if err != nil {
		return "", err
	}
	if m := queuedAs.FindStringSubmatch(text); m != nil {
		return m[1], nil
	}
	p.t.Errorf("reply without id: %q", text)
	return "", io.ErrUnexpectedEOF
}

// dotStuffed is a mail as it goes over the wire after DATA, its end mark included: every octet as it is, dots doubled at
// the start of lines, a final CRLF added where it is missing. (RFC 5321, section 4.5.2.)
func dotStuffed(mail []byte) []byte {
	var out []byte
	if bytes.HasPrefix(mail, []byte(".")) {
		out = append(out, '.')
	}
	out = append(out, bytes.ReplaceAll(mail, []byte("\r\n."), []byte("\r\n.."))...)
	if len(mail) > 0 && !bytes.HasSuffix(mail, []byte("\r\n")) {
		out = append(out, '\r', '\n')
	}
	return append(out, '.', '\r', '\n')
}

// WaitEnded waits until every recipient of a message has ended.
func (p *Pipeline) WaitEnded(id string) *adminv1.Message {
	p.t.Helper()
	return p.Wait(id, adminv1.MessageState_MESSAGE_STATE_ENDED)
}

// Wait waits until a message is in one of the states.
func (p *Pipeline) Wait(id string, until ...adminv1.MessageState) *adminv1.Message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	resp, err := p.Admin().WaitMessage(ctx, &adminv1.WaitMessageRequest{
		By: &adminv1.WaitMessageRequest_Id{Id: id}, Until: until, Timeout: durationpb.New(Patience),
	}, grpc.WaitForReady(true))
	if err != nil {
		got, getErr := p.Admin().GetMessage(context.Background(), &adminv1.GetMessageRequest{Id: id})
		p.t.Fatalf("waiting for %s to be %v: %v\nit is now: %v %v", id, until, err, got, getErr)
	}
	return resp.GetMessage()
}
