package sink

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// trusted is a client's configuration that trusts the sink's certificate, and those of rules too, for what they are for.
func trusted(t *testing.T, s *Sink) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	for _, cfg := range []*tls.Config{s.tls, s.otherTLS[Certificate], s.otherTLS[Expired], s.otherTLS[WrongName]} {
		cert, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		pool.AddCert(cert)
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// shake makes a handshake, after STARTTLS unless TLS is implicit.
func shake(t *testing.T, s *Sink, implicit bool, patience time.Duration) (*tls.Conn, error) {
	t.Helper()
	cl := dial(t, s.SMTP())
	if !implicit {
		cl.dialog("", "220", "EHLO x", "250 STARTTLS", "STARTTLS", "220")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	secure := tls.Client(cl.conn, trusted(t, s))
	return secure, secure.HandshakeContext(ctx)
}

func TestTLSFaults(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{At: StartTLS, Times: 1, Skip: 9, Then: Close}, ""}, // passes
		{Rule{At: StartTLS, Delay: Duration(time.Millisecond)}, ""},
		{Rule{At: StartTLS, Then: Close}, "EOF"},
		{Rule{At: StartTLS, Then: Reset}, "reset"},
		{Rule{At: StartTLS, Then: Garbage}, "does not look like a TLS handshake"},
		{Rule{At: StartTLS, Then: Certificate}, "expired"},
		{Rule{At: StartTLS, Then: Expired}, "expired"},
		{Rule{At: StartTLS, Then: WrongName}, "valid for other.invalid, not localhost"},
		{Rule{At: StartTLS, Then: Silence}, "deadline"},
	} {
		for _, implicit := range []bool{false, true} {
			name := string(c.rule.Then) + " " + c.want
			if implicit {
				name += ", implicit"
			}
			t.Run(name, func(t *testing.T) {
				s := start(t, Config{StartTLS: !implicit, ImplicitTLS: implicit}, c.rule)
				patience := time.Minute
				if c.rule.Then == Silence {
					patience = 300 * time.Millisecond
				}
				secure, err := shake(t, s, implicit, patience)
				if c.want != "" {
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("the handshake ended with %v, want %s", err, c.want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				tc := &client{t: t, conn: secure, r: bufio.NewReader(secure)}
				if implicit {
					tc.dialog("", "220")
				}
				tc.dialog("EHLO x", "250 AUTH", "STARTTLS", "502") // not offered again
			})
		}
	}
}

// A certificate that is bad twice says both: each on its own is told by the other rules.
func TestBadCertificateIsExpiredToo(t *testing.T) {
	s := start(t, Config{StartTLS: true})
	cert, err := x509.ParseCertificate(s.otherTLS[Certificate].Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if cert.NotAfter.After(time.Now()) || cert.VerifyHostname("localhost") == nil || cert.VerifyHostname("127.0.0.1") == nil {
		t.Errorf("until %s, for %v %v", cert.NotAfter, cert.DNSNames, cert.IPAddresses)
	}
}

func TestHTTPCertificates(t *testing.T) {
	for then, want := range map[Then]string{Expired: "expired", WrongName: "other.invalid", Continue: ""} {
		var rules []Rule
		if then != Continue {
			rules = []Rule{{At: StartTLS, Then: then}}
		}
		s := start(t, Config{HTTP: "127.0.0.1:0", ImplicitTLS: true}, rules...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.HTTP()+"/", strings.NewReader(message("1")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(HTTPRecipient, "b@y")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trusted(t, s)}}).Do(req)
		if err == nil {
			err = errors.Join(nil, resp.Body.Close())
		}
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", then, err, want)
		}
	}
}
