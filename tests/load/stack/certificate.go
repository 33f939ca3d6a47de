package stack

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/tests/load/sink"
)

// Certificate makes what a server shows to its SMTP clients, in files of a folder: self-signed, by ECDSA P-256.
func Certificate(dir string) (gateway.Certificate, error) {
	pair, err := sink.SelfSigned("localhost", time.Now().Add(24*time.Hour))
	if err != nil {
		return gateway.Certificate{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return gateway.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	files := gateway.Certificate{Cert: filepath.Join(dir, "smtp.crt"), Key: filepath.Join(dir, "smtp.key")}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, files.Key: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return gateway.Certificate{}, fmt.Errorf("making a certificate: %w", err)
		}
	}
	return files, nil
}
