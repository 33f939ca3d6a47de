package gateway_test

import (
	"crypto/tls"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// startTLS runs a gateway with certificates.
func startTLS(t *testing.T, section gateway.TLS, change func(*gateway.Config)) *edge {
	t.Helper()
	return start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.TLS = section
		if change != nil {
			change(c)
		}
	}})
}

// RFC 3207: STARTTLS is offered, works, and is not offered again inside.
func TestSTARTTLS(t *testing.T) {
	ca := newAuthority(t)
	e := startTLS(t, ca.section(t, "mx.test"), nil)
	d := e.dial(t)
	if got := d.cmd("EHLO c.test", "250-mx.test"); !strings.Contains(got, "\n250-STARTTLS\n") {
		t.Errorf("STARTTLS is not offered: %q", got)
	}
	d.cmd("STARTTLS now", "501 5.5.4")
	d.starttls(&tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"})
	if got := d.cmd("EHLO c.test", "250-mx.test"); strings.Contains(got, "STARTTLS") {
		t.Errorf("STARTTLS is offered inside TLS: %q", got)
	}
	d.cmd("STARTTLS", "503 5.5.1")
	for range 2 { // a large one is read another way
		d.envelope()
		d.cmd("DATA", "354 ")
		d.send(strings.Repeat(strings.Repeat("x", 998)+"\r\n", 200) + ".\r\n")
		d.want("250 2.0.0 Ok: queued")
	}
	d.cmd("QUIT", "221 ")
	d.wantClosed()
	got := e.spool.all()
	if len(got) != 2 || len(got[0].content) != 200_000 {
		t.Fatalf("stored %v", got)
	}
	reception := got[0].sub.Envelope.GetReception()
	if reception.GetProtocol() != "ESMTPS" || !strings.HasPrefix(reception.GetTls(), "TLSv1.3 TLS_") {
		t.Errorf("reception %v", reception)
	}
}

func TestSTARTTLSNotOffered(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{}).dial(t)
	if got := d.cmd("EHLO c.test", "250-"); strings.Contains(got, "STARTTLS") {
		t.Errorf("offered: %q", got)
	}
	d.cmd("STARTTLS", "502 5.5.1")
}

// Nothing that was said before TLS counts inside: neither what came behind STARTTLS in the same packet nor the state of
// the session. (RFC 3207, sections 4.2 and 6.)
func TestNothingCountsBeforeTLS(t *testing.T) {
	ca := newAuthority(t)
	e := startTLS(t, ca.section(t, "mx.test"), nil)
	config := &tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"}
	t.Run("commands in the same packet", func(t *testing.T) {
		d := e.dial(t)
		d.cmd("EHLO c.test", "250-")
		d.send("STARTTLS\r\nEHLO injected\r\nMAIL FROM:<evil@x.test>\r\n")
		d.want("220 2.0.0")
		d.secure(config)
		d.cmd("NOOP", "250 2.0.0 I have") // not the reply to EHLO
		d.cmd("RCPT TO:<a@x.test>", "503 5.5.1")
		if !strings.Contains(e.logs.String(), "octets=") {
			t.Error("no log line about it")
		}
	})
	t.Run("transaction", func(t *testing.T) {
		d := e.dial(t)
		d.envelope()
		d.starttls(config)
		d.cmd("RCPT TO:<a@x.test>", "503 5.5.1")
		d.cmd("DATA", "503 5.5.1")
		d.send("BDAT 6 LAST\r\nNOOP\r\n")
		d.want("503 5.5.1")
		d.cmd("MAIL FROM:<a@client.test>", "503 5.5.1 Say EHLO first")
		d.envelope()
	})
	t.Run("nothing said at all", func(t *testing.T) {
		d := e.dial(t)
		d.starttls(config)
		d.cmd("MAIL FROM:<>", "503 5.5.1")
		d.cmd("EHLO", "501 5.5.4")
		d.cmd("MAIL FROM:<>", "503 5.5.1")
		d.cmd("HELO c.test", "250 mx.test")
		d.cmd("MAIL FROM:<>", "250 ")
	})
}

// TLS from the start. (RFC 8314, section 3.3.)
func TestImplicitTLS(t *testing.T) {
	ca := newAuthority(t)
	e := startTLS(t, ca.section(t, "mx.test"), func(c *gateway.Config) {
		c.Listeners[0].Kind, c.Auth.Users = gateway.KindSubmissions, os.DevNull
	})
	d := e.dialRaw(t)
	d.secure(&tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"})
	d.want("220 mx.test")
	if got := d.cmd("EHLO c.test", "250-mx.test"); strings.Contains(got, "STARTTLS") {
		t.Errorf("STARTTLS is offered inside TLS: %q", got)
	}
	d.cmd("STARTTLS", "503 5.5.1")
}

// A client that does not speak TLS gets no word in the clear, and the session ends.
func TestGarbageInHandshake(t *testing.T) {
	ca := newAuthority(t)
	for name, kind := range map[string]gateway.Kind{"STARTTLS": gateway.KindMX, "from the start": gateway.KindSubmissions} {
		t.Run(name, func(t *testing.T) {
			e := startTLS(t, ca.section(t, "mx.test"), func(c *gateway.Config) { c.Listeners[0].Kind, c.Auth.Users = kind, os.DevNull })
			d := e.dialRaw(t)
			if kind == gateway.KindMX {
				d.want("220 ")
				d.cmd("STARTTLS", "220 ")
			}
			d.send("EHLO c.test\r\nQUIT\r\n")
			if err := d.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(d.r)
			if strings.Contains(string(rest), "mx.test") || strings.Contains(string(rest), "4") {
				t.Errorf("told in the clear: %q", rest)
			}
			e.stop()
			if !strings.Contains(e.logs.String(), "TLS handshake failed") {
				t.Error("no log line")
			}
		})
	}
}

// TLS 1.1 and older are refused. (RFC 8996.)
func TestOldTLS(t *testing.T) {
	ca := newAuthority(t)
	d := startTLS(t, ca.section(t, "mx.test"), nil).dial(t)
	d.cmd("STARTTLS", "220 ")
	conn := tls.Client(d.Conn, &tls.Config{
		RootCAs: ca.pool(), ServerName: "mx.test", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	})
	if err := conn.HandshakeContext(t.Context()); err == nil {
		t.Error("TLS 1.1 is taken")
	}
}

// The client's SNI decides which certificate it gets.
func TestSNI(t *testing.T) {
	ca := newAuthority(t)
	e := startTLS(t, ca.section(t, "mx.test", "mail.other.test"), nil)
	for asked, want := range map[string]string{"mx.test": "mx.test", "mail.other.test": "mail.other.test", "unknown.test": "mx.test"} {
		state := e.dial(t).starttls(&tls.Config{ServerName: asked, InsecureSkipVerify: true})
		if got := state.PeerCertificates[0].DNSNames[0]; got != want {
			t.Errorf("asked for %s: got the certificate of %s", asked, got)
		}
	}
}

// Changed files are read without a restart; while they can't be read the old certificate stays.
func TestCertificateReload(t *testing.T) {
	ca := newAuthority(t)
	section := ca.section(t, "mx.test")
	e := startTLS(t, section, nil)
	serial := func() string {
		d := e.dial(t)
		defer d.Close()
		return d.starttls(&tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"}).PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	writeFile(t, section.Certificates[0].Key, []byte("half written"))
	waitFor(t, "the warning", func() bool {
		return serial() == before && strings.Contains(e.logs.String(), "the old ones stay")
	})
	ca.issue(t, "mx.test")
	waitFor(t, "the new certificate", func() bool { return serial() != before })
}

// A gateway with certificates that can't be read does not start, and says which.
func TestBadCertificate(t *testing.T) {
	cfg := gateway.DefaultConfig()
	cfg.Listeners[0].Listen = "127.0.0.1:0"
	cfg.TLS.Certificates = []gateway.Certificate{{Cert: "/nowhere/a.crt", Key: "/nowhere/a.key"}}
	g, err := gateway.New(cfg, &fakeSpool{}, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "gateway.listeners[0].tls: certificate /nowhere/a.crt: ") {
		t.Errorf("Listen: %v", err)
	}
}
