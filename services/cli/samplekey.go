package cli

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rohrpost/rohrpost/services/resolver"
)

// The names of the samples. They end in .test, which no DNS ever delegates (RFC 6761, section 6.2).
const (
	SampleDomain   = "sample.test"
	sampleSelector = "rohrpost"
	sampleKeyFile  = "sample-dkim.key"
	sampleKeyBits  = 2048
)

// SampleKey signs the samples. It is made at the first start of `rohrpost up` and stays in the data folder.
type SampleKey struct {
	signer crypto.Signer
	public []byte // DER, as the DKIM record holds it
}

// MakeSampleKey reads the key of a data folder, and makes it first where there is none (mode 0600).
func MakeSampleKey(dir string) (*SampleKey, error) {
	key, err := readSampleKey(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	private, err := rsa.GenerateKey(rand.Reader, sampleKeyBits)
	if err != nil {
		return nil, fmt.Errorf("making the samples' DKIM key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("making the samples' DKIM key: %w", err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	//nolint:gosec // a fixed name in the data folder
	file, err := os.OpenFile(filepath.Join(dir, sampleKeyFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the samples' DKIM key: %w", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("making the samples' DKIM key: %w", err), os.Remove(file.Name()))
	}
	return newSampleKey(private)
}

func readSampleKey(dir string) (*SampleKey, error) {
	path := filepath.Join(dir, sampleKeyFile)
	data, err := os.ReadFile(path) //nolint:gosec // a fixed name in the data folder
	if err != nil {
		return nil, fmt.Errorf("reading the samples' DKIM key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("reading the samples' DKIM key: %s is damaged; remove it and start `rohrpost up` again", path)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := private.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("reading the samples' DKIM key: %s is damaged; remove it and start `rohrpost up` again", path)
	}
	return newSampleKey(signer)
}

func newSampleKey(signer crypto.Signer) (*SampleKey, error) {
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, fmt.Errorf("reading the samples' DKIM key: %w", err)
	}
	return &SampleKey{signer: signer, public: public}, nil
}

// Zone holds the DNS records of the samples, for the static zone of the resolver: SPF for clients on loopback, the DKIM
// key and a DMARC policy.
func (k *SampleKey) Zone() []resolver.Record {
	return []resolver.Record{
		{Name: SampleDomain, Type: "TXT", Value: "v=spf1 ip4:127.0.0.0/8 ip6:::1 -all"},
		{Name: SampleDomain, Type: "MX", Value: "10 mail." + SampleDomain},
		{Name: "mail." + SampleDomain, Type: "A", Value: "127.0.0.1"},
		{Name: sampleSelector + "._domainkey." + SampleDomain, Type: "TXT", Value: "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(k.public)},
		{Name: "_dmarc." + SampleDomain, Type: "TXT", Value: "v=DMARC1; p=reject"},
	}
}
