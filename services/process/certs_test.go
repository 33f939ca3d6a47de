package process

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The certificate of `up` vouches for its names and is kept.
func TestMakeSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	cert, key, err := MakeSelfSigned(dir, "gateway", []string{"mx.example"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(first.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "mx.example"} {
		if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		host string
		kept bool
	}{{"mx.example", true}, {"other.example", false}} {
		if _, _, err := MakeSelfSigned(dir, "gateway", []string{c.host}); err != nil {
			t.Fatal(err)
		}
		again, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		if again.Leaf.Equal(first.Leaf) != c.kept {
			t.Errorf("%s: kept %v, want %v", c.host, !c.kept, c.kept)
		}
	}
}

func TestMakeCertificatesKeepsWhatIsGood(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	now := time.Now()
	steps := []struct {
		name string
		opts CertificateOptions
		do   func()
		want []string
	}{
		{name: "first", opts: CertificateOptions{Services: []string{Spool, Gateway}}, want: []string{"ca", Spool, Gateway}},
		{name: "again", opts: CertificateOptions{Services: []string{Spool, Gateway}}},
		{name: "another service", opts: CertificateOptions{Services: []string{Spool, Parser}}, want: []string{Parser}},
		{name: "another name", opts: CertificateOptions{Services: []string{Spool}, Names: []string{"spool.example", "192.0.2.1"}}, want: []string{Spool}},
		{name: "name is there", opts: CertificateOptions{Services: []string{Spool}, Names: []string{"spool.example"}}},
		{name: "about to expire", opts: CertificateOptions{Services: []string{Spool}, Now: now.Add(certLifetime - renewBefore/2)}, want: []string{Spool}},
		{
			name: "the CA is gone", opts: CertificateOptions{Services: []string{Gateway}},
			do: func() { _ = os.Remove(filepath.Join(dir, "ca.crt")) }, want: []string{"ca", Gateway},
		},
	}
	for _, step := range steps {
		if step.do != nil {
			step.do()
		}
		got, err := MakeCertificates(dir, step.opts)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "spool.key": 0o600, "ca.crt": 0o644, "spool.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

func TestMakeCertificatesRefusesDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := MakeCertificates(dir, CertificateOptions{})
	if err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("got %v", err)
	}
}

func TestLoadTLS(t *testing.T) {
	server, client, err := LoadTLS(TLSConfig{}, Spool)
	if server != nil || client != nil || err != nil {
		t.Errorf("an empty section: %v %v %v", server, client, err)
	}
	for name, cfg := range map[string]TLSConfig{
		"no files": {Dir: t.TempDir()}, "half": {Cert: "x"}, "no key": {CA: "x", Cert: "y"},
	} {
		if _, _, err := LoadTLS(cfg, Spool); ExitCode(err) != ExitUsage {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestMakeToken(t *testing.T) {
	dir := t.TempDir()
	first, err := MakeToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := MakeToken(dir)
	if err != nil || first != second || len(first) < 32 {
		t.Errorf("got %q, %q, %v", first, second, err)
	}
	info, err := os.Stat(filepath.Join(dir, TokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, TokenFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeToken(dir); err == nil {
		t.Error("an empty token was taken")
	}
}
