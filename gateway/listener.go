package gateway

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

// Listener is an address at which the gateway takes mail, and what is special there.
type Listener struct {
	// Listen is host:port. Port 0 takes a free one. An empty host means all addresses.
	Listen string `yaml:"listen"`
	// Kind says who is served there. Empty means `mx`.
	Kind Kind `yaml:"kind"`
	// TLS wins over the gateway's where it is not empty.
	TLS TLS `yaml:"tls"`
	// ProxyFrom lists the networks of load balancers whose connections begin with a PROXY header (version 1 or 2), which
	// is believed, and without which they are turned away. From anywhere else such a header is refused.
	ProxyFrom []netip.Prefix `yaml:"proxy_from"`
	// ReusePort lets several gateway processes of one user listen at the address; the kernel spreads connections over
	// them (SO_REUSEPORT).
	ReusePort bool `yaml:"reuse_port"`
	// Limits win over those of the gateway; 0 means the gateway's. MaxSessions counts those of this listener, in addition
	// to the cap of the process.
	Limits `yaml:",inline"`
}

// Kind says who is served at a listener.
type Kind string

// The kinds of listeners.
const (
	KindMX          Kind = "mx"          // other hosts, with mail for our domains (port 25)
	KindSubmission  Kind = "submission"  // our users, by STARTTLS and AUTH (RFC 6409; port 587)
	KindSubmissions Kind = "submissions" // our users, with TLS from the start (RFC 8314, section 3.3; port 465)
	KindRelay       Kind = "relay"       // our own hosts, known by address or certificate
)

// kind is the kind that is in force.
func (l Listener) kind() Kind { return cmp.Or(l.Kind, KindMX) }

// tls is the section that is in force.
func (l Listener) tls(c Config) TLS {
	if l.TLS.enabled() {
		return l.TLS
	}
	return c.TLS
}

// Limits are the caps of sessions at a listener.
type Limits struct {
	// MaxSize is the most octets of content that a message may have; announced by SIZE (RFC 1870). From 64 KiB to below
	// 4 GiB.
	MaxSize bytesize.Size `yaml:"max_size"`
	// MaxRecipients is the most recipients that a message may have; one more is told 452, so that the client sends
	// the rest in another transaction. From 100 (RFC 5321, section 4.5.3.1.8) to 1 000: an envelope, and what became of
	// it, travels between services as one.
	MaxRecipients int `yaml:"max_recipients"`
	// MaxSessions is the most sessions at once; a further connection is told 421. Per process. Each needs an open file:
	// the process's limit is checked at the start.
	MaxSessions int `yaml:"max_sessions"`
	// MaxSessionsPerClient is the most sessions at once of one client address (IPv6: of one /64); one more is told 421.
	// Per process, over all listeners; clients on loopback and in relay.networks have no such cap. 0 means none.
	MaxSessionsPerClient int `yaml:"max_sessions_per_client"`
	// MaxCommands is the most command lines since the last accepted message or the start; one more is told 421. 0 means any
	// number.
	MaxCommands int `yaml:"max_commands"`
	// MaxErrors is the most 5xx replies since the last accepted message or the start; after one more comes 421. 0 means any
	// number.
	MaxErrors int `yaml:"max_errors"`
	// MinRate is the least octets of content a second, on average over what a message takes beyond timeouts.data; a slower
	// client is told 421. Time that the spool takes does not count. 0 means any rate.
	MinRate bytesize.Size `yaml:"min_rate"`
	// GreetDelay is how long a client must keep silent before it is greeted; one that does not is turned away. 0 means that
	// it is greeted at once.
	GreetDelay time.Duration `yaml:"greet_delay"`
	// ReplyDelay is waited before each reply, so that mass mailers lose time. At most 1 m; 0 means none.
	ReplyDelay time.Duration `yaml:"reply_delay"`
}

const maxGreetDelay = 2 * time.Minute

// fillIn takes from def what l leaves open.
func fillIn(l, def Limits) Limits {
	return Limits{
		MaxSize:              cmp.Or(l.MaxSize, def.MaxSize),
		MaxRecipients:        cmp.Or(l.MaxRecipients, def.MaxRecipients),
		MaxSessions:          cmp.Or(l.MaxSessions, def.MaxSessions),
		MaxSessionsPerClient: cmp.Or(l.MaxSessionsPerClient, def.MaxSessionsPerClient),
		MaxCommands:          cmp.Or(l.MaxCommands, def.MaxCommands),
		MaxErrors:            cmp.Or(l.MaxErrors, def.MaxErrors),
		MinRate:              cmp.Or(l.MinRate, def.MinRate),
		GreetDelay:           cmp.Or(l.GreetDelay, def.GreetDelay),
		ReplyDelay:           cmp.Or(l.ReplyDelay, def.ReplyDelay),
	}
}

// faults tells what is wrong with limits that are complete.
func limitFaults(l Limits, key string) (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(key+"."+format, args...))
		}
	}
	check(l.MaxSize >= 64*bytesize.KiB, "max_size %s is too small: give at least 64KiB", l.MaxSize)
	check(l.MaxSize <= 4*bytesize.GiB-1, "max_size %s is too large: give less than 4GiB", l.MaxSize)
	check(l.MaxRecipients >= 100, "max_recipients %d is too small: RFC 5321 asks for at least 100", l.MaxRecipients)
	check(l.MaxRecipients <= 1000, "max_recipients %d is too large: give at most 1000", l.MaxRecipients)
	check(l.MaxSessions >= 1, "max_sessions %d is too small: give at least 1", l.MaxSessions)
	check(l.MaxSessionsPerClient >= 0, "max_sessions_per_client %d is negative: give 0 for no cap", l.MaxSessionsPerClient)
	check(l.MaxCommands >= 0, "max_commands %d is negative: give 0 for any number", l.MaxCommands)
	check(l.MaxErrors >= 0, "max_errors %d is negative: give 0 for any number", l.MaxErrors)
	check(l.MinRate >= 0, "min_rate %d is negative: give 0 for any rate", l.MinRate)
	check(l.GreetDelay >= 0 && l.GreetDelay <= maxGreetDelay,
		"greet_delay %s is out of range: give 0 to %s, clients wait 5m for the greeting (RFC 5321, 4.5.3.2.1)", l.GreetDelay, maxGreetDelay)
	check(l.ReplyDelay >= 0 && l.ReplyDelay <= time.Minute, "reply_delay %s is out of range: give 0 to 1m", l.ReplyDelay)
	return errs
}

// faults tells what is wrong with a listener of c.
func (l Listener) faults(key string, c Config) (errs []error) {
	if _, _, err := net.SplitHostPort(l.Listen); err != nil {
		errs = append(errs, fmt.Errorf("%s.listen %q is not an address: give host:port, such as 127.0.0.1:2525", key, l.Listen))
	}
	switch l.kind() {
	case KindMX, KindRelay:
	case KindSubmission, KindSubmissions:
		if !l.tls(c).enabled() {
			errs = append(errs, fmt.Errorf("%s.tls: a listener of kind %s needs certificates: give them here or in gateway.tls", key, l.Kind))
		}
	default:
		errs = append(errs, fmt.Errorf("%s.kind %q is unknown: give mx, submission, submissions or relay", key, string(l.Kind)))
	}
	if l.ReusePort && !canReusePort {
		errs = append(errs, fmt.Errorf("%s.reuse_port: this system has no SO_REUSEPORT, leave it out", key))
	}
	errs = append(errs, l.TLS.faults(key+".tls")...)
	if l.Limits != (Limits{}) && limitFaults(c.Limits, "") == nil { // else the gateway's own fault would be told twice
		errs = append(errs, limitFaults(fillIn(l.Limits, c.Limits), key)...)
	}
	return errs
}

// reserveFiles is how many open files a process needs beside its sessions: connections to spools, log, certificates, and
// room to tell further clients 421.
const reserveFiles = 64

// checkFiles tells whether the process may open as many files as it may have sessions.
func checkFiles(maxSessions int) error {
	limit, err := maxOpenFiles()
	if err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if need := uint64(maxSessions) + reserveFiles; limit < need {
		return fmt.Errorf("gateway.max_sessions %d needs %d open files and the process may have %d: "+
			"raise that limit (ulimit -n, LimitNOFILE=) or lower max_sessions", maxSessions, need, limit)
	}
	return nil
}
