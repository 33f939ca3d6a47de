package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// edge is a gateway that runs for one test.
type edge struct {
	addr  string // of the first listener
	addrs []net.Addr
	spool *fakeSpool
	logs  *lockedBuffer
	stop  func() // begins the shutdown and waits for its end
	halt  func() // begins the shutdown
	done  chan struct{}

	g   *gateway.Gateway
	cfg gateway.Config // the latest that was given
}

type startOptions struct {
	change    func(*gateway.Config)
	directory gateway.Directory
	provider  trace.TracerProvider
}

func start(t *testing.T, spool *fakeSpool, opts startOptions) *edge {
	t.Helper()
	cfg := gateway.DefaultConfig()
	cfg.Listeners = []gateway.Listener{{Listen: "127.0.0.1:0"}}
	cfg.Hostname = "mx.test"
	cfg.Timeouts.Shutdown = patience
	if opts.change != nil {
		opts.change(&cfg)
	}
	logs := new(lockedBuffer)
	g, err := gateway.New(cfg, spool, gateway.Options{
		Logger: slog.New(slog.NewTextHandler(logs, nil)), TracerProvider: opts.provider, Directory: opts.directory,
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := g.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	e := &edge{addr: addrs[0].String(), addrs: addrs, spool: spool, logs: logs, halt: cancel, done: make(chan struct{}), g: g, cfg: cfg}
	go func() {
		defer close(e.done)
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	e.stop = func() {
		cancel()
		select {
		case <-e.done:
		case <-time.After(2 * patience):
			t.Error("Run does not return")
		}
	}
	t.Cleanup(e.stop)
	return e
}

// reload gives the gateway its configuration with a change.
func (e *edge) reload(t *testing.T, change func(*gateway.Config)) error {
	t.Helper()
	cfg := e.cfg
	cfg.Listeners = slices.Clone(cfg.Listeners)
	change(&cfg)
	_, err := e.g.Reload(t.Context(), cfg, nil)
	if err == nil {
		e.cfg = cfg
	}
	return err
}

// mustReload is reload where nothing is wrong.
func (e *edge) mustReload(t *testing.T, change func(*gateway.Config)) {
	t.Helper()
	if err := e.reload(t, change); err != nil {
		t.Fatalf("Reload: %v", err)
	}
}

// on is the gateway at another of its listeners.
func (e *edge) on(listener int) *edge {
	at := *e
	at.addr = e.addrs[listener].String()
	return &at
}

// dialog is a client that writes octets and reads replies.
type dialog struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

// dial connects and reads the greeting.
func (e *edge) dial(t *testing.T) *dialog {
	t.Helper()
	d := e.dialRaw(t)
	d.want("220 mx.test ")
	return d
}

func (e *edge) dialRaw(t *testing.T) *dialog {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &dialog{t: t, Conn: conn, r: bufio.NewReader(conn)}
}

func (d *dialog) send(s string) {
	d.t.Helper()
	if err := d.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.WriteString(d, s); err != nil {
		d.t.Fatalf("writing %.40q: %v", s, err)
	}
}

// reply reads a reply, its lines joined by LF.
func (d *dialog) reply() string {
	d.t.Helper()
	if err := d.SetReadDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	var lines []string
	for {
		line, err := d.r.ReadString('\n')
		if err != nil {
			d.t.Fatalf("reading a reply: %v (so far %q)", err, lines)
		}
		line = strings.TrimSuffix(line, "\r\n")
		lines = append(lines, line)
		if len(line) < 4 || line[3] != '-' {
			return strings.Join(lines, "\n")
		}
	}
}

// want reads a reply and compares its start.
func (d *dialog) want(prefix string) string {
	d.t.Helper()
	got := d.reply()
	if !strings.HasPrefix(got, prefix) {
		d.t.Fatalf("reply %q, want %q", got, prefix)
	}
	return got
}

// cmd sends a command line and wants a reply.
func (d *dialog) cmd(line, prefix string) string {
	d.t.Helper()
	d.send(line + "\r\n")
	got := d.reply()
	if !strings.HasPrefix(got, prefix) {
		d.t.Fatalf("reply to %.60q: %q, want %q", line, got, prefix)
	}
	return got
}

// envelope goes as far as a transaction that awaits content.
func (d *dialog) envelope() {
	d.t.Helper()
	d.cmd("EHLO client.test", "250-mx.test ")
	d.cmd("MAIL FROM:<a@client.test>", "250 2.")
	d.cmd("RCPT TO:<b@x.test>", "250 2.")
}

// wantClosed reads to the end of the connection.
func (d *dialog) wantClosed() {
	d.t.Helper()
	if err := d.SetReadDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	if rest, err := io.ReadAll(d.r); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 {
		d.t.Fatalf("connection is not closed: %q, %v", rest, err)
	}
}

// waitFor asks again and again until it is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

// wantEnd reads to the end of the connection, which may be a reset.
func (d *dialog) wantEnd() {
	d.t.Helper()
	if err := d.SetReadDeadline(time.Now().Add(2 * patience)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, d.r); errors.Is(err, os.ErrDeadlineExceeded) {
		d.t.Fatal("the session goes on")
	}
}

// flood sends commands and reads no replies until the session ends.
func (d *dialog) flood() {
	d.t.Helper()
	if err := d.Conn.(*net.TCPConn).SetReadBuffer(1024); err != nil {
		d.t.Fatal(err)
	}
	if err := d.SetWriteDeadline(time.Now().Add(2 * patience)); err != nil {
		d.t.Fatal(err)
	}
	noops := strings.Repeat("NOOP\r\n", 10_000)
	for {
		if _, err := io.WriteString(d, noops); errors.Is(err, os.ErrDeadlineExceeded) {
			d.t.Fatal("the session goes on")
		} else if err != nil {
			return
		}
	}
}

// corpus returns a path below ../shared/corpus beside the repository, or skips the test.
func corpus(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("corpus is not there: not in the workspace")
		}
	}
	path := filepath.Join(filepath.Dir(dir), "shared", "corpus", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("corpus is not there: %v", fmt.Sprintf("../shared/corpus/%s", name))
	}
	return path
}
