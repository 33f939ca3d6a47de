package deliver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// Config is the configuration of the deliver service.
type Config struct {
	// Hostname is the name we call ourselves by in EHLO and in notifications. Empty means the name of the machine.
	Hostname string `yaml:"hostname"`
	// Capacity is how many jobs are worked at at once. From 1 to 10 000.
	Capacity int `yaml:"capacity"`
	// Routes say where mail goes; the first that matches a recipient wins. A recipient that none matches is deferred.
	Routes []Route `yaml:"routes"`
	// Timeouts bound every wait for a next hop.
	Timeouts Timeouts `yaml:"timeouts"`
	// ReuseIdle is how long a connection to a next hop is kept for another message. 0 closes it after each. At most 2 min.
	ReuseIdle time.Duration `yaml:"reuse_idle"`
	// ReuseMessages is how many messages a connection carries at most. From 1.
	ReuseMessages int `yaml:"reuse_messages"`
	// ReturnedHeaders is how much of the header section a notification returns at most. From 1 KiB to 128 KiB.
	ReturnedHeaders bytesize.Size `yaml:"returned_headers"`
	// ReturnedMessage is up to which size a notification returns the whole message, where its sender asked for it
	// (RET=FULL). At most 384 KiB; 0 means never.
	ReturnedMessage bytesize.Size `yaml:"returned_message"`
}

// Via is a way to deliver.
type Via string

// The ways to deliver.
const (
	ViaMaildir Via = "maildir" // into a folder per recipient
	ViaSMTP    Via = "smtp"    // to a given host
	ViaReject  Via = "reject"  // refused for good
	ViaDiscard Via = "discard" // thrown away
)

// Route says where mail for some recipients goes.
type Route struct {
	// Match lists the recipients, as domains or addresses. At least one.
	Match []pattern.Pattern `yaml:"match"`
	// Via is maildir, smtp, reject or discard.
	Via Via `yaml:"via"`
	// Maildir belongs to via: maildir.
	Maildir MaildirRoute `yaml:"maildir"`
	// SMTP belongs to via: smtp.
	SMTP SMTPRoute `yaml:"smtp"`
	// Reject belongs to via: reject.
	Reject RejectRoute `yaml:"reject"`
}

// MaildirRoute delivers into Maildir folders.
type MaildirRoute struct {
	// Path is the folder that holds <domain>/<local part>/{tmp,new,cur}. It is created where it is missing.
	Path string `yaml:"path"`
}

// SMTPRoute delivers to a given host over SMTP.
type SMTPRoute struct {
	// Address is the next hop, host:port.
	Address string `yaml:"address"`
	// Helo is the name to say in EHLO. Empty means Hostname.
	Helo string `yaml:"helo"`
}

// RejectRoute refuses for good.
type RejectRoute struct {
	// Code is the reply code, 500 to 599. 0 means 550.
	Code int `yaml:"code"`
	// Enhanced is the enhanced status code of class 5. Empty means 5.7.1.
	Enhanced string `yaml:"enhanced"`
	// Text is what the sender is told, printable, at most 500 octets. Empty means "Delivery is not permitted".
	Text string `yaml:"text"`
}

// Timeouts bound the waits for a next hop. Each is for one reply, or for one write of a piece of content. None may be 0.
// (RFC 5321, section 4.5.3.2.)
type Timeouts struct {
	// Connect bounds looking up the host and connecting.
	Connect time.Duration `yaml:"connect"`
	// Greeting bounds the wait for the 220.
	Greeting time.Duration `yaml:"greeting"`
	// Helo bounds EHLO and HELO.
	Helo time.Duration `yaml:"helo"`
	// Mail bounds MAIL.
	Mail time.Duration `yaml:"mail"`
	// Rcpt bounds each RCPT.
	Rcpt time.Duration `yaml:"rcpt"`
	// Data bounds DATA, and the sending of each piece of content (up to 32 KiB).
	Data time.Duration `yaml:"data"`
	// DataDot bounds the wait for the reply to the final dot. Too short a time makes duplicates.
	DataDot time.Duration `yaml:"data_dot"`
	// Quit bounds QUIT, after the outcome is known.
	Quit time.Duration `yaml:"quit"`
}

// DefaultConfig returns the defaults. It has no routes: mail is deferred until there are some.
func DefaultConfig() Config {
	return Config{
		Capacity: 64,
		Timeouts: Timeouts{
			Connect:  30 * time.Second,
			Greeting: 5 * time.Minute,
			Helo:     5 * time.Minute,
			Mail:     5 * time.Minute,
			Rcpt:     5 * time.Minute,
			Data:     3 * time.Minute,
			DataDot:  10 * time.Minute,
			Quit:     5 * time.Second,
		},
		ReuseIdle: 3 * time.Second, ReuseMessages: 100,
		ReturnedHeaders: 64 * bytesize.KiB,
		ReturnedMessage: 256 * bytesize.KiB,
	}
}

// Validate checks the configuration. The error names each key at fault and the mend.
func (c Config) Validate() error {
	var errs []error
	if c.Hostname != "" && !validHost(c.Hostname) {
		errs = append(errs, fmt.Errorf("hostname: %q is no host name; use a name such as mx1.example.org", c.Hostname))
	}
	if c.Capacity < 1 || c.Capacity > 10_000 {
		errs = append(errs, fmt.Errorf("capacity: %d is out of range; use 1 to 10000", c.Capacity))
	}
	if c.ReuseIdle < 0 || c.ReuseIdle > 2*time.Minute {
		errs = append(errs, fmt.Errorf("reuse_idle: %s is out of range; use 0s to 2m", c.ReuseIdle))
	}
	if c.ReuseMessages < 1 {
		errs = append(errs, fmt.Errorf("reuse_messages: %d is out of range; use at least 1", c.ReuseMessages))
	}
	if c.ReturnedHeaders < bytesize.KiB || c.ReturnedHeaders > 128*bytesize.KiB {
		errs = append(errs, fmt.Errorf("returned_headers: %s is out of range; use 1KiB to 128KiB", c.ReturnedHeaders))
	}
	if c.ReturnedMessage < 0 || c.ReturnedMessage > 384*bytesize.KiB {
		errs = append(errs, fmt.Errorf("returned_message: %s is out of range; use 0 to 384KiB", c.ReturnedMessage))
	}
	errs = append(errs, c.Timeouts.validate()...)
	for i, r := range c.Routes {
		for _, err := range r.validate() {
			errs = append(errs, fmt.Errorf("routes[%d].%w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (t Timeouts) validate() []error {
	var errs []error
	for _, one := range []struct {
		key   string
		value time.Duration
	}{
		{"connect", t.Connect},
		{"greeting", t.Greeting},
		{"helo", t.Helo},
		{"mail", t.Mail},
		{"rcpt", t.Rcpt},
		{"data", t.Data},
		{"data_dot", t.DataDot},
		{"quit", t.Quit},
	} {
		if one.value <= 0 || one.value > time.Hour {
			errs = append(errs, fmt.Errorf("timeouts.%s: %s is out of range; use more than 0 and at most 1h", one.key, one.value))
		}
	}
	return errs
}

func (r Route) validate() []error {
	var errs []error
	if len(r.Match) == 0 {
		errs = append(errs, errors.New(`match: is missing; list domains or addresses, or "*" for all`))
	}
	for block, set := range map[Via]bool{
		ViaMaildir: r.Maildir != MaildirRoute{},
		ViaSMTP:    r.SMTP != SMTPRoute{},
		ViaReject:  r.Reject != RejectRoute{},
	} {
		if set && block != r.Via {
			errs = append(errs, fmt.Errorf("%s: belongs to via: %s, but via is %q; remove one of them", block, block, r.Via))
		}
	}
	switch r.Via {
	case ViaMaildir:
		if r.Maildir.Path == "" {
			errs = append(errs, errors.New("maildir.path: is missing; name the folder that mail goes to"))
		}
	case ViaSMTP:
		errs = append(errs, r.SMTP.validate()...)
	case ViaReject:
		errs = append(errs, r.Reject.validate()...)
	case ViaDiscard:
	default:
		errs = append(errs, fmt.Errorf("via: %q is not known; use maildir, smtp, reject or discard", r.Via))
	}
	return errs
}

func (s SMTPRoute) validate() []error {
	var errs []error
	if host, port, err := net.SplitHostPort(s.Address); err != nil || host == "" || port == "" {
		errs = append(errs, fmt.Errorf("smtp.address: %q is no host:port; write it as mail.example.org:25", s.Address))
	}
	if s.Helo != "" && !validHost(s.Helo) {
		errs = append(errs, fmt.Errorf("smtp.helo: %q is no host name; use a name such as mx1.example.org", s.Helo))
	}
	return errs
}

func (r RejectRoute) validate() []error {
	var errs []error
	if r.Code != 0 && (r.Code < 500 || r.Code > 599) {
		errs = append(errs, fmt.Errorf("reject.code: %d is not permanent; use 500 to 599", r.Code))
	}
	if r.Enhanced != "" && (!enhancedCode.MatchString(r.Enhanced) || r.Enhanced[0] != '5') {
		errs = append(errs, fmt.Errorf("reject.enhanced: %q is no permanent status; use one such as 5.7.1", r.Enhanced))
	}
	if len(r.Text) > 500 || strings.ContainsFunc(r.Text, unprintable) {
		errs = append(errs, errors.New("reject.text: must be printable and at most 500 octets; shorten it to one line"))
	}
	return errs
}

// validHost accepts host names and address literals, in the characters that can stand in an EHLO.
func validHost(s string) bool {
	return len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-._[]:", r)
	})
}

// hostname returns the configured name, or that of the machine where it can stand in an EHLO.
func (c Config) hostname() string {
	if c.Hostname != "" {
		return c.Hostname
	}
	if name, err := os.Hostname(); err == nil && name != "" && validHost(name) {
		return name
	}
	return "localhost"
}
