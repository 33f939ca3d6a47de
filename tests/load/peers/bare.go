package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/rohrpost/rohrpost/services/process"
)

// Bare is the SMTP library by itself, with a backend that throws everything away: no gateway on it can be faster.
type Bare struct {
	Address   string        // host:port
	Delay     time.Duration // before each reply
	Cert, Key string        // files; empty means no STARTTLS
	Debug     string        // host:port of profiles, see [process.Debug]; empty means none
}

// Serve serves until ctx ends.
func (b Bare) Serve(ctx context.Context) error {
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return nothing{}, nil }))
	server.Domain, server.AllowInsecureAuth = "floor.test", true
	server.MaxMessageBytes, server.MaxRecipients, server.MaxLineLength = 60_000_000, 1000, 64<<10
	if b.Cert != "" {
		pair, err := tls.LoadX509KeyPair(b.Cert, b.Key)
		if err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	ctx, cancel := context.WithCancel(ctx)
	var profiles sync.WaitGroup
	defer profiles.Wait()
	defer cancel()
	if b.Debug != "" {
		unit, err := process.Debug(ctx, process.DebugConfig{Listen: b.Debug})
		if err != nil {
			return err
		}
		profiles.Go(func() { _ = unit.Run(ctx) }) // whoever wants them notices
	}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.Address)
	if err != nil {
		return err
	}
	if b.Delay > 0 {
		lis = late{lis, b.Delay}
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(lis); !errors.Is(err, smtp.ErrServerClosed) {
		return err
	}
	return nil
}

// nothing is a session that takes everything and keeps nothing.
type nothing struct{}

// Mail implements smtp.Session.
func (nothing) Mail(string, *smtp.MailOptions) error { return nil }

// Rcpt implements smtp.Session.
func (nothing) Rcpt(string, *smtp.RcptOptions) error { return nil }

// Reset implements smtp.Session.
func (nothing) Reset() {}

// Logout implements smtp.Session.
func (nothing) Logout() error { return nil }

// Data implements smtp.Session.
func (nothing) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// late is a listener whose connections wait before each reply.
type late struct {
	net.Listener
	delay time.Duration
}

// Accept implements net.Listener.
func (l late) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lateConn{Conn: conn, delay: l.delay}, nil
}

// lateConn waits before the first write since the last read: a reply of several lines is several writes of the library.
type lateConn struct {
	net.Conn
	delay   time.Duration
	replied bool
}

// Read implements net.Conn.
func (c *lateConn) Read(p []byte) (int, error) {
	c.replied = false
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *lateConn) Write(p []byte) (int, error) {
	if !c.replied {
		time.Sleep(c.delay)
		c.replied = true
	}
	return c.Conn.Write(p)
}
