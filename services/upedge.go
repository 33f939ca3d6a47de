package services

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services/process"
)

// The addresses at which `up` takes mail of users. Where the first listener is not at its usual address, so that
// there may be another `up` beside this one, they are free ports.
const (
	upSubmission  = "127.0.0.1:2587"
	upSubmissions = "127.0.0.1:2465"
)

// upListeners adds listeners for users to the one that there is by default. It has no certificate, since clients that
// find STARTTLS would not believe one of our own making.
func upListeners(cfg *gateway.Config) {
	def := gateway.DefaultConfig().Listeners[0].Listen
	if len(cfg.Listeners) != 1 || cfg.Listeners[0].Kind != "" {
		return
	}
	at := func(usual string) string {
		if cfg.Listeners[0].Listen == def {
			return usual
		}
		return "127.0.0.1:0"
	}
	cfg.Listeners = append(cfg.Listeners,
		gateway.Listener{Listen: at(upSubmission), Kind: gateway.KindSubmission},
		gateway.Listener{Listen: at(upSubmissions), Kind: gateway.KindSubmissions})
}

// upEdge adds listeners for users, and gives them what they need and the configuration does not name: a certificate of our
// own making and an empty file of users.
func upEdge(cfg *gateway.Config, data string) error {
	upListeners(cfg)
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		if l.Kind != gateway.KindSubmission && l.Kind != gateway.KindSubmissions {
			continue
		}
		if cfg.Auth.Users == "" {
			cfg.Auth.Users = filepath.Join(data, process.UsersFile)
			if err := makeEmpty(cfg.Auth.Users); err != nil {
				return err
			}
		}
		if len(l.TLS.Certificates) > 0 || len(cfg.TLS.Certificates) > 0 {
			continue
		}
		cert, key, err := process.MakeSelfSigned(filepath.Join(data, "tls"), process.Gateway, []string{cfg.Hostname})
		if err != nil {
			return err
		}
		l.TLS.Certificates = []gateway.Certificate{{Cert: cert, Key: key}}
	}
	return nil
}

// listening notes where the gateway listens, for those who ask the data folder as well.
func (u *upProcess) listening(listeners []gateway.Listener, addrs []net.Addr) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running.SMTP = addrs[0].String()
	for i, l := range listeners {
		switch l.Kind {
		case gateway.KindSubmission:
			u.running.Submission = addrs[i].String()
		case gateway.KindSubmissions:
			u.running.Submissions = addrs[i].String()
		case gateway.KindMX, gateway.KindRelay, "":
		}
	}
	return process.WriteAddress(u.data, process.SMTPAddressFile, u.running.SMTP)
}

// makeEmpty makes a file where there is none.
func makeEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in the data folder
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("making the file of users: %w", err)
	}
	return f.Close()
}
