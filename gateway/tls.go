package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS is the section `tls` of the gateway and of its listeners. Files are PEM. They are read again, without a restart,
// once they have changed; while what is there can't be read, the last good one stays. TLS 1.2 is the least.
type TLS struct {
	// Certificates are those of this host. Which one a client gets depends on the name that it asks for (SNI), and on
	// what it can check; the first one where it asks for none of them.
	Certificates []Certificate `yaml:"certificates"`
	// ClientCA is the file of the authorities whose client certificates count. Empty: none count, and none is asked for.
	// Any other certificate is borne and says nothing.
	ClientCA string `yaml:"client_ca"`
}

// Certificate is a pair of files.
type Certificate struct {
	// Cert is the file of the certificate, followed by those of the authorities between it and the root.
	Cert string `yaml:"cert"`
	// Key is the file of its key.
	Key string `yaml:"key"`
}

func (t TLS) enabled() bool { return len(t.Certificates) > 0 }

// faults tells what is wrong, as far as it can be told without reading the files.
func (t TLS) faults(key string) (errs []error) {
	if t.ClientCA != "" && !t.enabled() {
		errs = append(errs, fmt.Errorf("%s.certificates is missing: client_ca needs one, give cert and key", key))
	}
	for i, c := range t.Certificates {
		if c.Cert == "" || c.Key == "" {
			errs = append(errs, fmt.Errorf("%s.certificates[%d]: cert and key belong together, give both files", key, i))
		}
	}
	return errs
}

// files are all files that matter.
func (t TLS) files() []string {
	var files []string
	for _, c := range t.Certificates {
		files = append(files, c.Cert, c.Key)
	}
	if t.ClientCA != "" {
		files = append(files, t.ClientCA)
	}
	return files
}

// load reads the files.
func (t TLS) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, c := range t.Certificates {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", c.Cert, err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	if t.ClientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("client_ca: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client_ca: %s holds no certificate in PEM form", t.ClientCA)
	}
	// Not VerifyClientCertIfGiven: a stranger with a certificate of his own is still a stranger who may send us mail.
	config.ClientAuth = tls.RequestClientCert
	return config, nil
}

// credentials are a TLS section at work.
type credentials struct {
	config *fileCache[*tls.Config]
}

func newCredentials(t TLS, warn func(error)) (*credentials, error) {
	config, err := newFileCache(t.files(), t.load, warn)
	if err != nil {
		return nil, err
	}
	return &credentials{config: config}, nil
}

// server is the configuration for connections. Its session tickets outlive a change of certificates.
func (c *credentials) server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.config.get(), nil },
	}
}

// verify returns the client's certificate where it is one of client_ca, nil where it gave none.
func (c *credentials) verify(state tls.ConnectionState) (*x509.Certificate, error) {
	if len(state.PeerCertificates) == 0 {
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	roots := c.config.get().ClientCAs
	if roots == nil { // asked for before client_ca was taken away
		return nil, nil //nolint:nilnil // as above
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	return leaf, nil
}
