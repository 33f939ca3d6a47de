package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/mailbox"
)

// Config is the `gateway` section of the configuration.
type Config struct {
	// Listeners are the addresses to accept SMTP connections at. Default: 127.0.0.1:2525.
	Listeners []Listener `yaml:"listeners"`
	// Hostname is what the gateway calls itself in its greeting and in Received fields: its fully qualified name.
	Hostname string `yaml:"hostname"`
	// Limits hold where a listener says nothing else. MaxSessions counts over all listeners.
	Limits `yaml:",inline"`
	// MaxMemory is the most octets of content in memory over all sessions. A message for which there is no room waits, and
	// its client with it, for timeouts.memory. From 1 MiB. Per process.
	MaxMemory bytesize.Size `yaml:"max_memory"`
	// BareNewline says what becomes of a message with a CR or LF that stands alone: `reject` or `normalize` (each
	// becomes CRLF). Normalising changes content and breaks signatures.
	BareNewline BareNewline `yaml:"bare_newline"`
	// TLS is what listeners offer to clients (STARTTLS, or TLS from the start). Empty: none.
	TLS TLS `yaml:"tls"`
	// Accept says whose mail is taken from everybody.
	Accept Accept `yaml:"accept"`
	// Relay says who may send to everybody.
	Relay Relay `yaml:"relay"`
	// Rates bound what one client may bring. Default: none.
	Rates []Rate `yaml:"rates"`
	// Greylist puts off first tries of strangers.
	Greylist Greylist `yaml:"greylist"`
	// Auth is how users make themselves known.
	Auth Auth `yaml:"auth"`
	// Timeouts are the deadlines of a session.
	Timeouts Timeouts `yaml:"timeouts"`
	// TrustTraceparent lists the networks whose clients may continue a trace of their own by a `traceparent` header
	// in the message (W3C Trace Context). Empty: nobody.
	TrustTraceparent []netip.Prefix `yaml:"trust_traceparent"`
}

// BareNewline is a policy for a CR or LF that is not part of a CRLF.
type BareNewline string

// The policies.
const (
	BareNewlineReject    BareNewline = "reject"
	BareNewlineNormalize BareNewline = "normalize"
)

// Timeouts are the deadlines of a session. (RFC 5321, section 4.5.3.2.)
type Timeouts struct {
	// Command is how long the gateway waits for a whole command line.
	Command time.Duration `yaml:"command"`
	// Data is how long the gateway waits for the next octets of content.
	Data time.Duration `yaml:"data"`
	// DataTotal is how long all the content of one message may take.
	DataTotal time.Duration `yaml:"data_total"`
	// Session is how long a session may last; after that no further command is waited for.
	Session time.Duration `yaml:"session"`
	// Proxy is how long a load balancer may take to send its PROXY header.
	Proxy time.Duration `yaml:"proxy"`
	// Handshake is how long a TLS handshake may take.
	Handshake time.Duration `yaml:"handshake"`
	// Directory is how long the directory may take to know a recipient; after that the client is told 451.
	Directory time.Duration `yaml:"directory"`
	// Memory is how long content waits for room in memory; after that the client is told 452.
	Memory time.Duration `yaml:"memory"`
	// Write is how long the client may take to read replies.
	Write time.Duration `yaml:"write"`
	// Submit is how long the spool may take to make a message durable once its content is there; after that the
	// client is told 451. Below 10 minutes (RFC 5321, section 4.5.3.2.6).
	Submit time.Duration `yaml:"submit"`
	// Shutdown is how long messages under way may still take when the gateway stops.
	Shutdown time.Duration `yaml:"shutdown"`
}

// DefaultConfig returns the configuration that holds where the file says nothing.
func DefaultConfig() Config {
	hostname, err := os.Hostname()
	if err != nil || !mailbox.IsDomain(hostname, false) {
		hostname = "localhost"
	}
	return Config{
		Listeners: []Listener{{Listen: "127.0.0.1:2525"}},
		Hostname:  hostname,
		Limits: Limits{
			MaxSize: 50e6, MaxRecipients: 1000, MaxSessions: 2000,
			MaxSessionsPerClient: 50, MaxCommands: 2000, MaxErrors: 20, MinRate: 100,
		},
		MaxMemory:   256 << 20,
		BareNewline: BareNewlineReject,
		Accept:      Accept{DirectoryCache: DirectoryCache{Known: time.Minute, Unknown: 10 * time.Second, Entries: 10_000}},
		Relay:       Relay{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		Greylist:    Greylist{Delay: 5 * time.Minute, Keep: 36 * time.Hour},
		Auth:        Auth{FailureDelay: time.Second, MaxFailures: 10, Lockout: 15 * time.Minute},
		Timeouts: Timeouts{
			Command:   5 * time.Minute, // RFC 5321, section 4.5.3.2.7
			Data:      3 * time.Minute, // RFC 5321, section 4.5.3.2.5
			DataTotal: time.Hour,
			Session:   4 * time.Hour,
			Proxy:     5 * time.Second,
			Handshake: 30 * time.Second,
			Directory: 5 * time.Second,
			Memory:    10 * time.Second,
			Write:     time.Minute,
			Submit:    time.Minute,
			Shutdown:  20 * time.Second,
		},
	}
}

// needsUsers tells whether a listener asks for AUTH.
func (c Config) needsUsers() bool {
	return slices.ContainsFunc(c.Listeners, func(l Listener) bool {
		return l.Kind == KindSubmission || l.Kind == KindSubmissions
	})
}

// asksForCertificates tells whether clients' certificates count at a listener.
func (c Config) asksForCertificates() bool {
	return slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.tls(c).ClientCA != "" })
}

// maxReply is how long a client must wait for the reply to its final dot. (RFC 5321, section 4.5.3.2.6.)
const maxReply = 10 * time.Minute

// maxTransfer is how old a message's id may be when its content is whole; a spool refuses ids that are some minutes older.
const maxTransfer = 70 * time.Minute

// Validate tells what is wrong with the configuration, all of it at once. Each error names the key and the mend.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Listeners) > 0, "gateway.listeners is empty: give at least one, such as {listen: 127.0.0.1:2525}")
	check(mailbox.IsDomain(c.Hostname, false), "gateway.hostname %q is not a domain name: give the name of this host, such as mx.example.org", c.Hostname)
	check(c.MaxMemory >= bytesize.MiB, "gateway.max_memory %s is too small: give at least 1MiB", c.MaxMemory)
	check(c.BareNewline == BareNewlineReject || c.BareNewline == BareNewlineNormalize,
		"gateway.bare_newline %q is unknown: give reject or normalize", string(c.BareNewline))
	for _, t := range []struct {
		key   string
		value time.Duration
	}{
		{"command", c.Timeouts.Command},
		{"data", c.Timeouts.Data},
		{"data_total", c.Timeouts.DataTotal},
		{"session", c.Timeouts.Session},
		{"proxy", c.Timeouts.Proxy},
		{"handshake", c.Timeouts.Handshake},
		{"directory", c.Timeouts.Directory},
		{"memory", c.Timeouts.Memory},
		{"write", c.Timeouts.Write},
		{"submit", c.Timeouts.Submit},
		{"shutdown", c.Timeouts.Shutdown},
	} {
		check(t.value > 0, "gateway.timeouts.%s %s is too short: give a positive duration, such as 1m", t.key, t.value)
	}
	check(c.Timeouts.Submit < maxReply,
		"gateway.timeouts.submit %s is too long: clients wait 10m for the reply (RFC 5321, 4.5.3.2.6), give less", c.Timeouts.Submit)
	check(c.Timeouts.DataTotal+c.Timeouts.Submit <= maxTransfer,
		"gateway.timeouts.data_total %s is too long: with submit it may take 70m, since spools refuse older ids; give less", c.Timeouts.DataTotal)
	errs = append(errs, c.TLS.faults("gateway.tls")...)
	errs = append(errs, c.Auth.faults()...)
	errs = append(errs, c.Accept.faults()...)
	errs = append(errs, c.Greylist.faults())
	for i, r := range c.Rates {
		errs = append(errs, r.faults(fmt.Sprintf("gateway.rates[%d]", i))...)
	}
	check(len(c.Relay.Certificates) == 0 || c.asksForCertificates(),
		"gateway.relay.certificates can't be checked: give tls.client_ca too, for the gateway or a listener")
	check(c.Auth.Users != "" || !c.needsUsers(), "gateway.auth.users is missing: listeners for submission need it, give a file (`rohrpost user add` makes one)")
	errs = append(errs, limitFaults(c.Limits, "gateway")...)
	for i := range c.Listeners {
		_, port, _ := net.SplitHostPort(c.Listeners[i].Listen)
		check(port == "0" || !slices.ContainsFunc(c.Listeners[:i], func(l Listener) bool { return l.Listen == c.Listeners[i].Listen }),
			"gateway.listeners[%d].listen %s stands there twice: give another address or leave one out", i, c.Listeners[i].Listen)
		errs = append(errs, c.Listeners[i].faults(fmt.Sprintf("gateway.listeners[%d]", i), c)...)
	}
	return errors.Join(errs...)
}
