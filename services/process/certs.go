package process

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// CertificateOptions says which certificates to make.
type CertificateOptions struct {
	// Services get a certificate each: gateway.crt and gateway.key. Empty means all of [CertificateServices].
	Services []string
	// Names are host names and IP addresses that stand in every certificate, beside the service's word, localhost and
	// the loopback addresses.
	Names []string
	// Split gives each service a folder of its own, <service>/, with its certificate, its key and ca.crt, so that it can
	// be mounted where nobody else's key is needed; the CA is in ca/. Otherwise all files are in one folder.
	Split bool
	// Now is the time; zero means time.Now.
	Now time.Time
}

// folder is where the files of a service, or of the CA, are.
func (o CertificateOptions) folder(dir, name string) string {
	if o.Split {
		return filepath.Join(dir, name)
	}
	return dir
}

// CertificateServices are the words that get a certificate by default.
func CertificateServices() []string {
	return []string{Spool, Gateway, Parser, Filter, Deliver, Console, CLI}
}

const (
	caName       = "ca"
	caLifetime   = 10 * 365 * 24 * time.Hour
	certLifetime = 365 * 24 * time.Hour
	renewBefore  = 30 * 24 * time.Hour
	clockSkew    = time.Hour // certificates start a little in the past
)

// MakeCertificates makes a development CA (ca.crt, ca.key) and a certificate for each service in a folder: ECDSA P-256,
// with the URI rohrpost://<service> that says what the service may call. What is there already is kept unless it expires
// within 30 days, lacks a name, or is not of this CA. Keys have mode 0600, certificates 0644. It returns the names of
// the certificates it made.
//
// Who holds ca.key can be any service: keep it away from where services run, or use a CA of your own.
func MakeCertificates(dir string, opts CertificateOptions) ([]string, error) {
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	if len(opts.Services) == 0 {
		opts.Services = CertificateServices()
	}
	for _, name := range append([]string{caName}, opts.Services...) {
		if err := os.MkdirAll(opts.folder(dir, name), 0o755); err != nil { //nolint:gosec // certificates are public; keys are 0600
			return nil, Usage("certificates: %w; choose a folder that can be written", err)
		}
	}
	var made []string
	caDir := opts.folder(dir, caName)
	ca, err := readPair(caDir, caName)
	if err != nil || expiresSoon(ca.cert, opts.Now) || !ca.cert.IsCA {
		if err := refuseUnreadable(err); err != nil {
			return nil, err
		}
		if ca, err = makePair(caDir, caName, caTemplate(opts.Now), nil); err != nil {
			return nil, err
		}
		made = append(made, caName)
	}
	for _, service := range opts.Services {
		template, at := serviceTemplate(service, opts), opts.folder(dir, service)
		if err := giveCA(caDir, at); err != nil {
			return nil, err
		}
		pair, err := readPair(at, service)
		if err == nil && !expiresSoon(pair.cert, opts.Now) && pair.cert.CheckSignatureFrom(ca.cert) == nil && covers(pair.cert, template) {
			continue
		}
		if err := refuseUnreadable(err); err != nil {
			return nil, err
		}
		if _, err := makePair(at, service, template, ca); err != nil {
			return nil, err
		}
		made = append(made, service)
	}
	return made, nil
}

// giveCA puts the CA's certificate beside a service's own where that has a folder of its own.
func giveCA(caDir, at string) error {
	if at == caDir {
		return nil
	}
	cert, err := os.ReadFile(filepath.Join(caDir, caName+".crt")) //nolint:gosec // the CA that was just read or made
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	path := filepath.Join(at, caName+".crt")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, cert) { //nolint:gosec // a fixed name
		return nil
	}
	if err := writeNew(path, cert, 0o644); err != nil {
		return fmt.Errorf("writing the CA's certificate: %w", err)
	}
	return nil
}

// MakeSelfSigned makes a certificate that vouches for itself, for trying: NAME.crt and NAME.key in a folder, for these
// host names and for localhost and the loopback addresses. What is there is kept unless it expires within 30 days or
// lacks a name.
func MakeSelfSigned(dir, name string, hosts []string) (cert, key string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("certificate %s: %w", name, err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	now := time.Now()
	template := serviceTemplate(name, CertificateOptions{Names: hosts, Now: now})
	template.DNSNames, template.URIs = append([]string{"localhost"}, hosts...), nil
	there, err := readPair(dir, name)
	if err == nil && !expiresSoon(there.cert, now) && covers(there.cert, template) {
		return cert, key, nil
	}
	if err := refuseUnreadable(err); err != nil {
		return "", "", err
	}
	_, err = makePair(dir, name, template, nil)
	return cert, key, err
}

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var errNotPEM = errors.New("is not a certificate or key in PEM form")

// refuseUnreadable keeps files that we could not read, such as ones of another user, from being replaced.
func refuseUnreadable(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("certificates: %w; remove the file to have it made again", err)
}

func readPair(dir, name string) (*pair, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certDER, err := readPEM(certPath)
	if err != nil {
		return nil, err
	}
	keyDER, err := readPEM(keyPath)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certPath, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyPath, err)
	}
	ecKey, ok := key.(*ecdsa.PrivateKey)
	if !ok || !ecKey.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s does not belong to %s", keyPath, certPath)
	}
	return &pair{cert: cert, key: ecKey}, nil
}

func readPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a fixed name in the folder that the user named
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s %w", path, errNotPEM)
	}
	return block.Bytes, nil
}

func expiresSoon(cert *x509.Certificate, now time.Time) bool {
	return now.Add(renewBefore).After(cert.NotAfter) || now.Before(cert.NotBefore)
}

// covers tells whether a certificate holds all names of a template.
func covers(cert, template *x509.Certificate) bool {
	for _, name := range template.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range template.IPAddresses {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return slices.Equal(certificateNames(cert), certificateNames(template))
}

func caTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Rohrpost development CA"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
}

func serviceTemplate(service string, opts CertificateOptions) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: service},
		NotBefore:   opts.Now.Add(-clockSkew),
		NotAfter:    opts.Now.Add(certLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{service, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		URIs:        []*url.URL{{Scheme: identityScheme, Host: service}},
	}
	for _, name := range opts.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return template
}

// makePair makes a key and a certificate, signed by parent, or by itself where that is nil, and writes them: the key
// first, so that no certificate stands without its key.
func makePair(dir, name string, template *x509.Certificate, parent *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	signer := &pair{cert: template, key: key}
	if parent != nil {
		signer = parent
	}
	certDER, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing the key of %s: %w", name, err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER})
	if err := errors.Join(
		writeNew(filepath.Join(dir, name+".key"), keyPEM, 0o600),
		writeNew(filepath.Join(dir, name+".crt"), certPEM, 0o644),
	); err != nil {
		return nil, fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of %s: %w", name, err)
	}
	return &pair{cert: cert, key: key}, nil
}
