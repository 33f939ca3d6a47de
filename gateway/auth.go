package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/emersion/go-sasl"

	"github.com/rohrpost/rohrpost/gateway/user"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Auth is the section `auth`: how users make themselves known at listeners of kind submission and submissions.
type Auth struct {
	// Users is the file of users, see package user. It is read again once it has changed.
	Users string `yaml:"users"`
	// FailureDelay is how long the reply to a wrong password takes, at least.
	FailureDelay time.Duration `yaml:"failure_delay"`
	// MaxFailures is how many wrong passwords a client's address (IPv6: its /64), and a user's name, may have within
	// Lockout; then both wait until that time has given them another try. Per process. 0 means any number.
	MaxFailures int `yaml:"max_failures"`
	// Lockout is the time in which max_failures are forgiven, one after the other.
	Lockout time.Duration `yaml:"lockout"`
}

func (a Auth) faults() (errs []error) {
	if a.FailureDelay < 0 || a.FailureDelay > time.Minute {
		errs = append(errs, fmt.Errorf("gateway.auth.failure_delay %s is out of range: give 0 to 1m", a.FailureDelay))
	}
	if a.MaxFailures < 0 {
		errs = append(errs, fmt.Errorf("gateway.auth.max_failures %d is negative: give 0 for any number", a.MaxFailures))
	}
	if a.Lockout <= 0 {
		errs = append(errs, fmt.Errorf("gateway.auth.lockout %s is too short: give a positive duration, such as 15m", a.Lockout))
	}
	return errs
}

// The replies to AUTH. (RFC 4954, sections 4 and 6.)
var (
	errAuthNotOffered  = smtpreply.New(502, "5.5.1", "AUTH is not offered here")
	errAuthNeedsTLS    = smtpreply.New(538, "5.7.11", "AUTH needs TLS: say STARTTLS first")
	errAuthMechanism   = smtpreply.New(504, "5.5.4", "Unknown mechanism, try PLAIN or LOGIN")
	errAuthTransaction = smtpreply.New(503, "5.5.1", "AUTH is not allowed within a transaction")
	errAuthResponse    = smtpreply.New(501, "5.5.2", "Malformed response")
	errAuthFailed      = smtpreply.New(535, "5.7.8", "Name or password is wrong")
	errAuthLocked      = smtpreply.New(454, "4.7.0", "Too many wrong passwords, try again later")
	errAuthBusy        = smtpreply.New(454, "4.7.0", "Temporary authentication failure")
)

// authenticator checks passwords.
type authenticator struct {
	cfg      Auth
	users    *fileCache[*user.List]
	slots    chan struct{} // each check takes one
	failures *buckets      // nil where any number is borne
}

// newAuthenticator remembers the failures that old has counted, unless others are borne now. old may be nil.
func newAuthenticator(cfg Auth, slots chan struct{}, old *authenticator, warn func(error)) (*authenticator, error) {
	users, err := newFileCache([]string{cfg.Users}, func() (*user.List, error) { return user.Load(cfg.Users) }, warn)
	if err != nil {
		return nil, fmt.Errorf("gateway.auth.%w", err)
	}
	a := &authenticator{cfg: cfg, users: users, slots: slots}
	switch {
	case cfg.MaxFailures == 0:
	case old != nil && old.cfg.MaxFailures == cfg.MaxFailures && old.cfg.Lockout == cfg.Lockout:
		a.failures = old.failures
	default:
		a.failures = newBuckets(int64(cfg.MaxFailures), cfg.Lockout)
	}
	return a, nil
}

// check returns the user, or an error for the client. What fails takes failure_delay, whatever the cause; stop ends that
// delay.
func (a *authenticator) check(ctx context.Context, stop <-chan struct{}, addr netip.Addr, name, password string) (*user.User, error) {
	began := time.Now()
	keys := []string{"host " + hostOf(addr).String(), "user " + strings.ToLower(cut(name))}
	u, err := a.try(ctx, keys, name, password)
	if err == nil {
		return u, nil
	}
	late := time.NewTimer(time.Until(began.Add(a.cfg.FailureDelay)))
	defer late.Stop()
	select {
	case <-late.C:
	case <-stop:
	case <-ctx.Done():
	}
	return nil, err
}

// authWait is how long an attempt waits for its turn: checking a password takes a core for a while, on purpose.
const authWait = 10 * time.Second

func (a *authenticator) try(ctx context.Context, keys []string, name, password string) (*user.User, error) {
	if a.failures != nil {
		for _, key := range keys {
			if !a.failures.has(key, time.Now()) {
				return nil, errAuthLocked
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, authWait)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, errAuthBusy
	}
	u := a.users.get().Check(name, password)
	<-a.slots
	if u != nil {
		return u, nil
	}
	if a.failures != nil {
		for _, key := range keys {
			a.failures.take(key, 1, time.Now())
		}
	}
	return nil, errAuthFailed
}

// AuthMechanisms implements smtp.AuthSession: what EHLO offers.
func (s *session) AuthMechanisms() []string {
	if s.port.auth == nil || s.tls == "" {
		return nil
	}
	return []string{sasl.Plain, sasl.Login}
}

// Auth implements smtp.AuthSession.
func (s *session) Auth(mechanism string) (sasl.Server, error) {
	switch {
	case s.port.auth == nil:
		return nil, refusal(errAuthNotOffered)
	case s.tls == "":
		return nil, refusal(errAuthNeedsTLS)
	case s.tx != nil: // RFC 4954, section 4
		return nil, refusal(errAuthTransaction)
	}
	switch mechanism {
	case sasl.Plain:
		return &exchange{sasl.NewPlainServer(s.authenticate)}, nil
	case sasl.Login:
		return &exchange{&loginServer{authenticate: s.authenticate}}, nil
	}
	return nil, refusal(errAuthMechanism)
}

// authenticate is called with what the client says of itself.
func (s *session) authenticate(identity, name, password string) error {
	if identity != "" && identity != name { // RFC 4616, section 2: nobody may act as somebody else
		return errAuthFailed
	}
	u, err := s.port.auth.check(s.ctx, s.g.halting, s.addr.Addr(), name, password)
	if err != nil {
		s.log.WarnContext(s.ctx, "authentication failed", "user", cut(name), "error", err)
		return err
	}
	s.user = u
	s.log.InfoContext(s.ctx, "authenticated", "user", u.Name)
	return nil
}

// exchange gives the library errors that it tells as they are.
type exchange struct{ sasl.Server }

// Next implements sasl.Server.
func (e *exchange) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = e.Server.Next(response)
	var reply *smtpreply.Error
	switch {
	case err == nil:
		return challenge, done, nil
	case errors.As(err, &reply):
		return nil, false, refusal(err)
	}
	return nil, false, refusal(errAuthResponse)
}

// loginServer is the LOGIN mechanism, as draft-murchison-sasl-login tells it: name, then password, each asked for.
type loginServer struct {
	authenticate sasl.PlainAuthenticator
	name         []byte
	asked        bool // for the password
}

// Next implements sasl.Server.
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case !l.asked:
		l.name, l.asked = response, true
		return []byte("Password:"), false, nil
	}
	return nil, true, l.authenticate("", string(l.name), string(response))
}
