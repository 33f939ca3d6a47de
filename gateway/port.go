package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/emersion/go-smtp"

	"github.com/rohrpost/rohrpost/gateway/wire"
)

// port is a listener of a configuration at work, with the library's server for its sessions. It gets connections from its
// address's socket until a reload retires it, and lives on until its last session has ended.
type port struct {
	g       *Gateway
	set     *settings
	kind    Kind
	limits  Limits // complete; MaxSessions is the cap of the listener
	proxies []netip.Prefix
	wire    *wire.Options
	tls     *credentials   // nil without TLS
	auth    *authenticator // nil without AUTH
	server  *smtp.Server

	accepted inbox
}

// newPort makes a port of set, without a socket.
func (g *Gateway) newPort(ctx context.Context, set *settings, l Listener) (*port, error) {
	p := &port{
		g: g, set: set, kind: l.kind(), limits: fillIn(l.Limits, set.cfg.Limits), proxies: l.ProxyFrom, accepted: make(inbox),
	}
	if section := l.tls(set.cfg); section.enabled() {
		var err error
		p.tls, err = newCredentials(section, g.warner(ctx, "certificates not read again, the old ones stay"))
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if p.submission() {
		p.auth = set.auth
	}
	p.wire, p.server = p.wireOptions(), p.newServer()
	return p, nil
}

// inbox is the library's listener: the connections that were admitted. It is closed by whoever fills it.
type inbox chan net.Conn

// Accept implements net.Listener.
func (i inbox) Accept() (net.Conn, error) {
	nc, ok := <-i
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}

// Close implements net.Listener. The library calls it when it is told to wait for its sessions.
func (i inbox) Close() error { return nil }

// Addr implements net.Listener.
func (i inbox) Addr() net.Addr { return &net.TCPAddr{} }

// startPort serves the port's connections until it is retired and its last session has ended.
func (g *Gateway) startPort(work context.Context, p *port) {
	g.serving.Go(func() {
		_ = p.server.Serve(p.accepted)                     // ends when the port is retired, and by nothing else
		_ = p.server.Shutdown(context.WithoutCancel(work)) // waits
	})
}

// retire ends the port, but for its sessions. Nothing may hand connections to it any more. It is called once.
func (p *port) retire() { close(p.accepted) }

// submission tells whether users submit mail here.
func (p *port) submission() bool { return p.kind == KindSubmission || p.kind == KindSubmissions }

func (p *port) wireOptions() *wire.Options {
	cfg := p.set.cfg
	o := &wire.Options{
		Hostname:         cfg.Hostname,
		LenientNewline:   cfg.BareNewline == BareNewlineNormalize,
		CommandTimeout:   cfg.Timeouts.Command,
		DataTimeout:      cfg.Timeouts.Data,
		DataTotalTimeout: cfg.Timeouts.DataTotal,
		HandshakeTimeout: cfg.Timeouts.Handshake,
		SessionTimeout:   cfg.Timeouts.Session,
		MaxRecipients:    p.limits.MaxRecipients,
		GreetDelay:       p.limits.GreetDelay,
		ReplyDelay:       p.limits.ReplyDelay,
		MinRate:          int64(p.limits.MinRate),
		MaxCommands:      p.limits.MaxCommands,
		MaxErrors:        p.limits.MaxErrors,
		Stopping:         p.g.halting,
		WriteTimeout:     cfg.Timeouts.Write,
		ImplicitTLS:      p.kind == KindSubmissions,
	}
	if p.tls != nil {
		o.TLS = p.tls.server()
	}
	return o
}

func (p *port) newServer() *smtp.Server {
	s := smtp.NewServer(smtp.BackendFunc(p.g.newSession))
	s.Domain = p.set.cfg.Hostname
	s.MaxMessageBytes = int64(p.limits.MaxSize)
	s.MaxRecipients = 0 // ours; package wire announces it
	s.MaxLineLength = 0 // package wire bounds command lines, and content has a limit of its own
	s.EnableSMTPUTF8 = true
	s.EnableDSN = true         // reads the parameters; package wire does not let it be announced
	s.AllowInsecureAuth = true // the library does not see TLS; the session does
	s.ErrorLog = libraryLog{p.g.log}
	return s
}

// libraryLog writes what the library has to say.
type libraryLog struct{ log *slog.Logger }

// Printf implements smtp.Logger.
func (l libraryLog) Printf(format string, v ...any) {
	l.log.WarnContext(context.Background(), "smtp library", "detail", fmt.Sprintf(format, v...))
}

// Println implements smtp.Logger.
func (l libraryLog) Println(v ...any) {
	l.log.WarnContext(context.Background(), "smtp library", "detail", fmt.Sprint(v...))
}
