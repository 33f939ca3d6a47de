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

// port is a listener at work, with the library's server for its sessions.
type port struct {
	g       *Gateway
	kind    Kind
	limits  Limits // complete; MaxSessions is the cap of the port
	proxies []netip.Prefix
	wire    *wire.Options
	tls     *credentials   // nil without TLS
	auth    *authenticator // nil without AUTH
	socket  net.Listener
	server  *smtp.Server

	sessions int // guarded by Gateway.mu
}

// open makes a port.
func (g *Gateway) open(ctx context.Context, l Listener) (*port, error) {
	var config net.ListenConfig
	if l.ReusePort {
		config.Control = reusePort
	}
	p := &port{g: g, kind: l.kind(), limits: fillIn(l.Limits, g.cfg.Limits), proxies: l.ProxyFrom}
	var err error
	if section := l.tls(g.cfg); section.enabled() {
		p.tls, err = newCredentials(section, g.warner(ctx, "certificates not read again, the old ones stay"))
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if p.submission() {
		p.auth = g.auth
	}
	if p.socket, err = config.Listen(ctx, "tcp", l.Listen); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p.wire, p.server = p.wireOptions(), p.newServer()
	return p, nil
}

// submission tells whether users submit mail here.
func (p *port) submission() bool { return p.kind == KindSubmission || p.kind == KindSubmissions }

func (p *port) wireOptions() *wire.Options {
	cfg := p.g.cfg
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

// serve accepts connections until the socket is closed.
func (p *port) serve(work context.Context) error {
	return p.server.Serve(&acceptor{Listener: p.socket, p: p, work: work})
}

// wait returns when the last session of the port has ended.
func (p *port) wait(ctx context.Context) {
	_ = p.server.Shutdown(context.WithoutCancel(ctx)) // fails only since the socket has been closed
}

func (p *port) newServer() *smtp.Server {
	s := smtp.NewServer(smtp.BackendFunc(p.g.newSession))
	s.Domain = p.g.cfg.Hostname
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
