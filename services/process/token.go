package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile is the name of the token's file in the data folder.
const TokenFile = "token"

const bearer = "Bearer "

// MakeToken reads the token of a data folder, and makes it first where there is none: random, readable by its owner
// alone (0600).
func MakeToken(dir string) (string, error) {
	path := filepath.Join(dir, TokenFile)
	token, err := ReadToken(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token = rand.Text() + rand.Text()
	if err := writeNew(path, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("making the token: %w", err)
	}
	return token, nil
}

// ReadToken reads a token's file. fs.ErrNotExist is in the error's chain where there is none.
func ReadToken(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 16 {
		return "", fmt.Errorf("reading the token: %s holds no token; remove it and start `rohrpost up` again", path)
	}
	return token, nil
}

// The files in the data folder that tell where `rohrpost up` listens, so that commands that are given the folder find it.
const (
	GRPCAddressFile = "grpc-address" // the admin service
	SMTPAddressFile = "smtp-address" // the gateway
)

// UsersFile is the name of the file of users in the data folder of `rohrpost up`.
const UsersFile = "users"

// WriteAddress notes an address in a file of a data folder.
func WriteAddress(dir, file, address string) error {
	if err := writeNew(filepath.Join(dir, file), []byte(address+"\n"), 0o644); err != nil {
		return fmt.Errorf("noting the address in %s: %w", file, err)
	}
	return nil
}

// ReadAddress reads what [WriteAddress] wrote, empty where there is nothing that can be read.
func ReadAddress(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a fixed name in the data folder
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// writeNew writes a file such that nobody sees half of it.
func writeNew(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is gone where the rename went well
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// tokenCredential sends a token with every call.
type tokenCredential string

// GetRequestMetadata gives the header.
func (t tokenCredential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": bearer + string(t)}, nil
}

// RequireTransportSecurity is false: the token's listener is on loopback. See [Dial].
func (t tokenCredential) RequireTransportSecurity() bool { return false }
