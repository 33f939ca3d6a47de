package process

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
)

// TLSConfig is the section `tls`: how services know each other.
type TLSConfig struct {
	// Dir is the folder of ca.crt and of <service>.crt and <service>.key, as `rohrpost certs` makes it. Empty, and
	// nothing else given, means that services talk in clear text and trust every peer.
	Dir string `yaml:"dir"`
	// CA is the file of the authority's certificates, in place of Dir's ca.crt.
	CA string `yaml:"ca"`
	// Cert is the file of this process's certificate, in place of Dir's.
	Cert string `yaml:"cert"`
	// Key is the file of the key of Cert.
	Key string `yaml:"key"`
}

// Enabled tells whether there is TLS between services.
func (c TLSConfig) Enabled() bool { return c != TLSConfig{} }

// Validate checks the section.
func (c TLSConfig) Validate() error {
	if (c.Cert == "") != (c.Key == "") {
		return Usage("tls: cert and key belong together; give both or neither")
	}
	if c.Enabled() && c.Dir == "" && (c.CA == "" || c.Cert == "") {
		return Usage("tls: give dir, or ca, cert and key")
	}
	return nil
}

// LoadTLS reads the certificates of a service and makes both sides of mutual TLS 1.3 from them: a server that asks for
// a certificate of the same CA, and a client that expects to talk to a spool. The client checks the spool's word and not
// the host name, so that spools may stand at any address. Both are nil where the section is empty.
func LoadTLS(cfg TLSConfig, service string) (server, client *tls.Config, err error) {
	if !cfg.Enabled() {
		return nil, nil, nil
	}
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	ca, cert, key := cfg.CA, cfg.Cert, cfg.Key
	if ca == "" {
		ca = filepath.Join(cfg.Dir, caName+".crt")
	}
	if cert == "" {
		cert, key = filepath.Join(cfg.Dir, service+".crt"), filepath.Join(cfg.Dir, service+".key")
	}
	roots := x509.NewCertPool()
	data, err := os.ReadFile(ca) //nolint:gosec // the user's configuration names it
	if err != nil {
		return nil, nil, Usage("tls: the CA's certificate: %w; make one with `rohrpost certs DIR`", short(err))
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, nil, Usage("tls: %s holds no certificate in PEM form", ca)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, nil, Usage("tls: the certificate of %s: %w; make one with `rohrpost certs DIR`", service, short(err))
	}
	server = &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}
	client = &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ServerName:   Spool,
		MinVersion:   tls.VersionTLS13,
	}
	return server, client, nil
}

// short leaves the name of the system call out of a file's error.
func short(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return &shortPathError{path: pathErr.Path, err: pathErr.Err}
	}
	return err
}

type shortPathError struct {
	path string
	err  error
}

func (e *shortPathError) Error() string { return e.path + ": " + e.err.Error() }

func (e *shortPathError) Unwrap() error { return e.err }
