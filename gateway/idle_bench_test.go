package gateway_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/gateway"
)

// BenchmarkIdleSession tells what an open session costs that waits for its client: heap and stacks in use, in octets, after
// EHLO and after a message, beside the bare library's. The clients are in the same process: `client alone` is their part.
// Run it with -benchtime 4000x.
func BenchmarkIdleSession(b *testing.B) {
	const hello, message = "EHLO c.test\r\n", "MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nDATA\r\nSubject: x\r\n\r\nx\r\n.\r\n"
	b.Run("gateway, EHLO", func(b *testing.B) { benchmarkIdle(b, gatewayFor(b), hello) })
	b.Run("library, EHLO", func(b *testing.B) { benchmarkIdle(b, bareLibrary(b), hello) })
	b.Run("gateway, message", func(b *testing.B) { benchmarkIdle(b, gatewayFor(b), hello, message) })
	b.Run("library, message", func(b *testing.B) { benchmarkIdle(b, bareLibrary(b), hello, message) })
	b.Run("client alone", func(b *testing.B) { benchmarkIdle(b, answerTwice(b), hello) })
}

func benchmarkIdle(b *testing.B, addr string, groups ...string) {
	heap, stack := inUse()
	conns := make([]net.Conn, 0, b.N)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	var buf [1024]byte
	for range b.N {
		conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := conn.Read(buf[:]); err != nil {
			b.Fatal(err)
		}
		for _, group := range groups {
			if _, err := io.WriteString(conn, group); err != nil {
				b.Fatal(err)
			}
			for n, last := 0, strings.Count(group, "\r\n")/2; !strings.Contains(string(buf[:n]), "250 ") || strings.Count(string(buf[:n]), "\n") < last; {
				m, err := conn.Read(buf[n:])
				if err != nil {
					b.Fatal(err)
				}
				n += m
			}
		}
	}
	time.Sleep(time.Second) // until all sessions wait
	heapAfter, stackAfter := inUse()
	b.ReportMetric((heapAfter-heap)/float64(b.N), "heap-B/session")
	b.ReportMetric((stackAfter-stack)/float64(b.N), "stack-B/session")
}

func inUse() (heap, stack float64) {
	var m runtime.MemStats
	for range 4 { // each halves stacks that are larger than they need to be
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse), float64(m.StackInuse)
}

func gatewayFor(b *testing.B) string {
	cfg := gateway.DefaultConfig()
	cfg.Listeners[0].Listen, cfg.MaxSessions = "127.0.0.1:0", 10_000
	return serveFor(b, cfg)
}

func bareLibrary(b *testing.B) string {
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &bareSession{}, nil }))
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		b.Fatal(err)
	}
	server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// bareSession is the least that the library asks for.
type bareSession struct{}

func (*bareSession) Reset()                               { /* no state */ }
func (*bareSession) Logout() error                        { return nil }
func (*bareSession) Mail(string, *smtp.MailOptions) error { return nil }
func (*bareSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (*bareSession) Data(r io.Reader) error               { _, err := io.Copy(io.Discard, r); return err }

// answerTwice answers twice and keeps the connection without a goroutine.
func answerTwice(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		b.Fatal(err)
	}
	var kept []net.Conn
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			kept = append(kept, conn)
			_, _ = io.WriteString(conn, "220\r\n")
			var buf [64]byte
			_, _ = conn.Read(buf[:])
			_, _ = io.WriteString(conn, "250 \r\n")
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		done.Wait()
		for _, c := range kept {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

// discarding is a spool that keeps nothing.
type discarding struct{}

func (discarding) Now() time.Time { return time.Now() }

func (discarding) Submit(_ context.Context, sub *gateway.Submission) (gateway.Receipt, error) {
	if sub.Stream == nil {
		return gateway.Receipt{}, nil
	}
	_, err := io.Copy(io.Discard, sub.Stream)
	return gateway.Receipt{}, err
}

func serveFor(b *testing.B, cfg gateway.Config) string {
	b.Helper()
	g, err := gateway.New(cfg, discarding{}, gateway.Options{Logger: slog.New(slog.DiscardHandler), TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		b.Fatal(err)
	}
	addrs, err := g.Listen(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return addrs[0].String()
}
