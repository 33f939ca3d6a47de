package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/gateway/user"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// A user of `rohrpost up` submits mail by STARTTLS and AUTH, with the certificate that it made for itself, and the mail
// arrives. Nobody else's does.
func TestSubmission(t *testing.T) {
	data := rohrtest.TempDir(t)
	if err := user.Add(filepath.Join(data, process.UsersFile), "ann@a.example", "long enough", nil); err != nil {
		t.Fatal(err)
	}
	p := rohrtest.Start(t, rohrtest.WithData(data))
	pem, err := os.ReadFile(filepath.Join(data, "tls", "gateway.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	dial := func() *smtp.Client {
		c, err := smtp.Dial(p.Running().Submission)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.StartTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	stranger := dial()
	if err := stranger.Mail("ann@a.example"); err == nil || !strings.Contains(err.Error(), "530") {
		t.Errorf("without AUTH: %v", err)
	}
	c := dial()
	if err := c.Auth(smtp.PlainAuth("", "ann@a.example", "long enough", "127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	id, err := p.SendOn(c, "ann@a.example", []string{"bob@b.example"}, []byte("Subject: x\r\n\r\nx\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.WaitEnded(id)
	if mails := p.Mail("bob@b.example"); len(mails) != 1 {
		t.Errorf("%d mails arrived", len(mails))
	}
}
