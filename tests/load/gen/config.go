package gen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// TLS says how a connection is protected.
type TLS string

// The ways.
const (
	Plain    TLS = ""
	StartTLS TLS = "starttls"
	Implicit TLS = "implicit"
)

// Config says what load is made. Zero values that are named below have defaults.
type Config struct {
	Target      string // host:port
	AllowPublic bool   // the target may be elsewhere than on loopback or in a private network
	Run         string // how the ids of this run begin; empty makes one up

	Sessions   int           // sessions at once; with Rate the most at once (default 1)
	Rate       float64       // sessions started each second, whatever becomes of those before; 0 starts one where one ended
	PerSession int           // messages in each session; 0 means as many as there are to send, with Rate 1
	WarmUp     int64         // messages whose times don't count, sent first
	WarmFor    time.Duration // how long the warm-up lasts at least, from the first message on
	Messages   int64         // messages after that; 0 means until Duration is over
	Duration   time.Duration // how long messages are sent after the warm-up; 0 means until Messages are, or no session can be opened
	Ramp       time.Duration // over which the first sessions are opened, evenly; 0 opens them at once
	Think      time.Duration // what each session waits before each message but its first
	SlowShare  float64       // share of sessions, 0 to 1, that write content slowly
	SlowRate   int           // how slowly: octets each second (default 1000)
	Timeout    time.Duration // for each reply and each connection (default 1m); the reply to content has ten times that
	Grace      time.Duration // for the sessions under way when ctx ends (default 10s)

	Mails      []*mail.Mail // taken in turn (default one of 4 KB)
	Sender     string       // default load@a.example
	Domains    []string     // of recipients, taken in turn (default b.example)
	Users      int          // local parts in each domain: user0, user1 … (default 100)
	Recipients int          // of each message (default 1)

	TLS        TLS
	TLSConfig  *tls.Config // default: any certificate is good, since load is no test of names
	Username   string      // AUTH PLAIN; empty means none
	Password   string
	Pipelining bool // MAIL, RCPT and DATA in one write
	Chunk      int  // octets of each BDAT chunk; 0 sends by DATA
	LMTP       bool // LHLO, and a reply to content for each recipient
	Sources    int  // loopback addresses 127.0.0.1, 127.0.0.2 … that connections come from (default 1; more where ports run short)

	Ledger   *ledger.Writer // gets an [ledger.Entry] for each message attempted; nil means none
	Progress func(Progress) // called each second, if set
}

// Progress is how far a run is.
type Progress struct {
	Since    time.Duration // since the start
	Open     int64         // sessions open now
	Accepted int64         // messages accepted so far
	Total    int64         // messages to send, 0 where not known
	Errors   int64         // what else happened so far
}

// withDefaults checks a configuration and fills in the defaults.
func (c Config) withDefaults(ctx context.Context) (Config, error) {
	def(&c.Sessions, 1)
	def(&c.SlowRate, 1000)
	def(&c.Timeout, time.Minute)
	def(&c.Grace, 10*time.Second)
	def(&c.Sender, "load@a.example")
	def(&c.Users, 100)
	def(&c.Recipients, 1)
	def(&c.Sources, 1)
	if len(c.Mails) == 0 {
		c.Mails = []*mail.Mail{mail.Sized(4 << 10)}
	}
	if len(c.Domains) == 0 {
		c.Domains = []string{"b.example"}
	}
	if c.TLSConfig == nil {
		// Whole records, as other clients send them: Go's short ones at a connection's start would be a cost of its own.
		c.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, DynamicRecordSizingDisabled: true} //nolint:gosec // see the comment there
	}
	if c.Rate > 0 {
		def(&c.PerSession, 1) // sessions that never end would leave no place for those to come
	}
	if c.Run == "" {
		c.Run = newRun()
	}
	switch {
	case c.Messages == 0 && c.Duration == 0:
		return c, errors.New("gen: give a number of messages or a duration: a load must end")
	case !c.inRange():
		return c, errors.New("gen: a count, size, rate, share or time is out of range")
	case !pathWord(c.Sender) || slices.ContainsFunc(c.Domains, func(domain string) bool { return !pathWord(domain) }):
		return c, errors.New("gen: a sender or domain has what no path may have") // it could be a command of its own
	case c.TLS != Plain && c.TLS != StartTLS && c.TLS != Implicit:
		return c, fmt.Errorf("gen: TLS %q is unknown: give %s or %s", c.TLS, StartTLS, Implicit)
	}
	return c, guard(ctx, c.Target, c.AllowPublic)
}

// most is the highest count of messages: the sum of two still is one.
const most = math.MaxInt64 / 4

// inRange tells whether the numbers can be meant, after the defaults.
func (c *Config) inRange() bool {
	for _, n := range []int64{
		int64(c.Sessions), int64(c.PerSession), c.WarmUp, c.Messages, int64(c.SlowRate), int64(c.Users), int64(c.Recipients), int64(c.Chunk),
		int64(c.Sources), int64(c.WarmFor), int64(c.Duration), int64(c.Ramp), int64(c.Think), int64(c.Timeout), int64(c.Grace),
	} {
		if n < 0 {
			return false
		}
	}
	return c.WarmUp <= most && c.Messages <= most && c.Rate >= 0 && !math.IsInf(c.Rate, 1) && c.SlowShare >= 0 && c.SlowShare <= 1
}

// pathWord tells whether text can stand in a path: it neither ends the path nor the line. (RFC 5321, section 4.1.2.)
func pathWord(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 127 || r == '<' || r == '>' })
}

// def sets a default where there is the zero value.
func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// guard refuses a target that is not ours to load.
func guard(ctx context.Context, target string, public bool) error {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return fmt.Errorf("gen: target %q is not host:port", target)
	}
	if public {
		return nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("gen: target: %w", err)
	}
	for _, addr := range addrs {
		if addr = addr.Unmap(); !private(addr) {
			return fmt.Errorf("gen: %s (%s) is neither loopback nor private: load on other people's servers is an attack; "+
				"say --allow-public if it is yours", host, addr)
		}
	}
	return nil
}

func private(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}
