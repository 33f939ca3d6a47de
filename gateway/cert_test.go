package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// authority signs certificates for tests.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.make(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue makes the files of a certificate for a host, or of one for a client of that name.
func (a *authority) issue(t *testing.T, name string) gateway.Certificate {
	t.Helper()
	a.make(t, name, &x509.Certificate{
		DNSNames:    []string{name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return gateway.Certificate{Cert: a.file(name + ".crt"), Key: a.file(name + ".key")}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// section is a TLS section with certificates for hosts.
func (a *authority) section(t *testing.T, hosts ...string) gateway.TLS {
	t.Helper()
	var s gateway.TLS
	for _, host := range hosts {
		s.Certificates = append(s.Certificates, a.issue(t, host))
	}
	return s
}

func (a *authority) make(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeFile(t, a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// starttls goes over to TLS.
func (d *dialog) starttls(config *tls.Config) tls.ConnectionState {
	d.t.Helper()
	d.cmd("STARTTLS", "220 2.0.0")
	return d.secure(config)
}

// secure makes a handshake; what follows is inside TLS.
func (d *dialog) secure(config *tls.Config) tls.ConnectionState {
	d.t.Helper()
	if n := d.r.Buffered(); n > 0 {
		d.t.Fatalf("%d octets before the handshake", n)
	}
	conn := tls.Client(d.Conn, config)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	if err := conn.HandshakeContext(d.t.Context()); err != nil {
		d.t.Fatalf("handshake: %v", err)
	}
	d.Conn = conn
	d.r.Reset(conn)
	return conn.ConnectionState()
}
