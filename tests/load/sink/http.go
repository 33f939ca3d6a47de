package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// The header fields by which an HTTP client tells the envelope. To may stand several times.
const (
	HTTPSender    = "X-Rohrload-Sender"
	HTTPRecipient = "X-Rohrload-Recipient"
)

// serveHTTP takes a content as the body of a POST to any path, and answers with the status of the reply's code.
func (s *Sink) serveHTTP(lis net.Listener) {
	if s.cfg.ImplicitTLS {
		cfg := s.tls.Clone()
		cfg.GetConfigForClient = s.certificateFor
		lis = tls.NewListener(lis, cfg)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(s.post), ReadHeaderTimeout: idle, ErrorLog: log.New(io.Discard, "", 0), // handshakes fail as scripts want
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			s.book.connected()
			return ctx
		},
	}
	s.mu.Lock()
	closing := s.sessions == nil
	s.server = server
	s.mu.Unlock()
	if closing {
		_ = lis.Close()
		return
	}
	_ = server.Serve(lis) // until Close
}

// certificateFor chooses what a client is shown; nil means the usual certificate. Of rules at StartTLS, HTTP obeys those of
// certificates alone.
func (s *Sink) certificateFor(*tls.ClientHelloInfo) (*tls.Config, error) {
	if rule := s.script.Load().find(StartTLS, situation{protocol: "http"}); rule != nil {
		return s.otherTLS[rule.Then], nil
	}
	return nil, nil //nolint:nilnil // as the hook wants it
}

func (s *Sink) post(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST a message", http.StatusMethodNotAllowed)
		return
	}
	now := situation{protocol: "http", sender: r.Header.Get(HTTPSender), recipients: r.Header.Values(HTTPRecipient)}
	body := http.MaxBytesReader(w, r.Body, MaxContent)
	var content bytes.Buffer
	if rule := s.script.Load().find(Content, now); rule != nil {
		_, _ = io.CopyN(&content, body, int64(rule.Octets))
		if !s.pause(rule) || rule.Then != Continue {
			s.hijack(w, rule.Then)
			return
		}
	}
	if _, err := content.ReadFrom(body); err != nil {
		return // the client has gone
	}
	a := s.book.examine("http", now.sender, content.Bytes(), "")
	now.id = a.id
	rule := s.script.Load().find(Dot, now)
	reply, sent := outcome(rule)
	recipients := now.recipients
	if len(recipients) == 0 {
		recipients = []string{""}
	}
	status := http.StatusOK
	if rule != nil && rule.Reply != "" {
		status = reply
	}
	for _, recipient := range recipients {
		s.book.enter(a, recipient, status, sent)
	}
	if rule != nil && (!s.pause(rule) || rule.Then != Continue) {
		s.hijack(w, rule.Then)
		return
	}
	w.WriteHeader(status)
}

// pause waits as a rule says. It is false when the sink closes meanwhile.
func (s *Sink) pause(rule *Rule) bool {
	select {
	case <-s.done:
		return false
	case <-time.After(time.Duration(rule.Delay)):
		return true
	}
}

// hijack does to the connection what a rule says.
func (s *Sink) hijack(w http.ResponseWriter, then Then) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if !s.track(conn) {
		return
	}
	defer s.untrack(conn)
	c := &session{sink: s, protocol: "http"}
	c.use(conn)
	c.raw = conn
	if secure, ok := conn.(*tls.Conn); ok {
		c.raw = secure.NetConn()
	}
	_ = c.then(then)
}
