package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Phase is where in a session a rule may act.
type Phase string

// The phases. At each but Content a rule stands in for the usual reply.
const (
	Connect  Phase = "connect"  // the greeting
	Hello    Phase = "hello"    // EHLO, HELO, LHLO
	StartTLS Phase = "starttls" // the 220; Then acts in place of the handshake, that of implicit TLS too
	Auth     Phase = "auth"
	Mail     Phase = "mail"
	Rcpt     Phase = "rcpt"
	Data     Phase = "data"    // the 354
	Content  Phase = "content" // while content comes in
	Dot      Phase = "dot"     // the reply to the content: SMTP, LMTP (each recipient), BDAT LAST, HTTP
	Quit     Phase = "quit"
)

// Then is what happens to the connection.
type Then string

// What a rule may do to a connection.
const (
	Continue    Then = ""
	Close       Then = "close"       // end it in order (FIN)
	Reset       Then = "reset"       // break it (RST)
	Silence     Then = "silence"     // keep it and say nothing more, until the client or the sink closes it
	Garbage     Then = "garbage"     // octets that are neither SMTP nor TLS, then close
	Certificate Then = "certificate" // at StartTLS: a certificate that has expired and is for another name
	Expired     Then = "expired"     // at StartTLS: one for the right name that has expired
	WrongName   Then = "wrong-name"  // at StartTLS: one that is good, for another name
)

// Rule is one thing that the sink does otherwise than usual. The first rule that matches acts. Empty conditions match.
type Rule struct {
	At        Phase  `json:"at"`
	Protocol  string `json:"protocol,omitempty"`  // smtp, lmtp or http
	Sender    string `json:"sender,omitempty"`    // pattern as of path.Match for the reverse-path, from Mail on
	Recipient string `json:"recipient,omitempty"` // pattern for any of the transaction's recipients, in lower case, from Rcpt on
	ID        string `json:"id,omitempty"`        // pattern for the load id, at Dot
	Skip      int    `json:"skip,omitempty"`      // how many matches it lets pass first
	Times     int    `json:"times,omitempty"`     // how many times it acts at most; 0 means always
	Every     int    `json:"every,omitempty"`     // it acts on each nth match; 0 means on each

	Delay Duration `json:"delay,omitempty"` // how long to wait before anything else
	Reply string   `json:"reply,omitempty"` // what to say; lines parted by LF, code included. Empty with Then: nothing
	// Octets is, at Content, how many octets of content are read before the rule acts; elsewhere, with Then, how many
	// octets of Reply are written (0: all).
	Octets int  `json:"octets,omitempty"`
	Then   Then `json:"then,omitempty"`

	matched *atomic.Int64
}

// Duration is a time in words, such as 1.5s.
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Script is a list of rules. A nil Script has none. It may be used by many sessions at once.
type Script struct {
	rules []Rule
}

// NewScript checks rules and makes a script of them.
func NewScript(rules ...Rule) (*Script, error) {
	s := &Script{rules: make([]Rule, len(rules))}
	var errs []error
	for i, r := range rules {
		if err := r.validate(); err != nil {
			errs = append(errs, fmt.Errorf("rule %d: %w", i+1, err))
		}
		r.Sender, r.Recipient, r.ID = strings.ToLower(r.Sender), strings.ToLower(r.Recipient), strings.ToLower(r.ID) // as what they are matched with
		r.matched = new(atomic.Int64)
		s.rules[i] = r
	}
	return s, errors.Join(errs...)
}

// ReadScript reads the rules of a JSON file: a list of objects.
func ReadScript(path string) (*Script, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, fmt.Errorf("reading a script: %w", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	var rules []Rule
	err = dec.Decode(&rules)
	if err == nil && rules == nil {
		err = errors.New("null is no list of rules")
	}
	if _, more := dec.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is more after the list of rules")
	}
	if err != nil {
		return nil, fmt.Errorf("reading a script: %s: %w", path, err)
	}
	return NewScript(rules...)
}

var replyLine = regexp.MustCompile(`^[2345][0-9][0-9]([ -]|$)`)

func (r Rule) validate() error {
	switch r.At {
	case Connect, Hello, StartTLS, Auth, Mail, Rcpt, Data, Content, Dot, Quit:
	default:
		return fmt.Errorf("at %q is no phase", r.At)
	}
	switch r.Then {
	case Continue, Close, Reset, Silence, Garbage:
	case Certificate, Expired, WrongName:
		if r.At != StartTLS {
			return fmt.Errorf("then %s is for starttls", r.Then)
		}
	default:
		return fmt.Errorf("then %q is unknown", r.Then)
	}
	switch r.Protocol {
	case "", "smtp", "lmtp", "http":
	default:
		return fmt.Errorf("protocol %q is unknown", r.Protocol)
	}
	for _, pattern := range []string{r.Sender, r.Recipient, r.ID} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	switch {
	case r.ID != "" && r.At != Dot:
		return errors.New("the id is known at dot only")
	case r.Recipient != "" && (r.At == Connect || r.At == Hello || r.At == StartTLS || r.At == Auth || r.At == Mail):
		return fmt.Errorf("recipients are not known at %s", r.At)
	case r.At == Content && r.Reply != "":
		return errors.New("at content there is nothing to reply to: take dot")
	case r.Then == Continue && r.Delay == 0 && r.Reply == "":
		return errors.New("it does nothing: give delay, reply or then")
	case r.Reply != "" && !replyLine.MatchString(r.Reply):
		return fmt.Errorf("reply %q has no code", r.Reply)
	case strings.Contains(r.Reply, "\r"):
		return errors.New("reply has a CR: its lines are parted by LF")
	case r.Octets < 0 || r.Skip < 0 || r.Times < 0 || r.Every < 0 || r.Delay < 0:
		return errors.New("a count or delay is negative")
	case r.Octets > 0 && r.Then == Continue && r.At != Content:
		return errors.New("octets cut a reply off: give then as well")
	}
	return nil
}

// situation is what rules are matched against.
type situation struct {
	protocol   string
	sender     string
	recipients []string
	id         string
}

// find returns the rule that acts, or nil.
func (s *Script) find(at Phase, now situation) *Rule {
	if s == nil {
		return nil
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.At == at && r.matches(now) && r.due() {
			return r
		}
	}
	return nil
}

func (r *Rule) matches(now situation) bool {
	if r.Protocol != "" && r.Protocol != now.protocol {
		return false
	}
	if !match(r.Sender, now.sender) || !match(r.ID, now.id) {
		return false
	}
	if r.Recipient == "" {
		return true
	}
	for _, recipient := range now.recipients {
		if match(r.Recipient, recipient) {
			return true
		}
	}
	return false
}

func match(pattern, value string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, strings.ToLower(value))
	return ok && err == nil
}

// passes tells whether a command is carried out in spite of a rule, which may be nil.
func (r *Rule) passes() bool {
	return r == nil || r.Reply == "" && r.Then == Continue || code(r.Reply)/100 == 2
}

// due counts a match and tells whether the rule acts on it.
func (r *Rule) due() bool {
	n := r.matched.Add(1) - int64(r.Skip)
	if n <= 0 {
		return false
	}
	if r.Every > 1 {
		if n%int64(r.Every) != 0 {
			return false
		}
		n /= int64(r.Every)
	}
	return r.Times == 0 || n <= int64(r.Times)
}

// code is the code of a reply; 0 where it has none.
func code(reply string) int {
	if len(reply) < 3 {
		return 0
	}
	n, err := strconv.Atoi(reply[:3])
	if err != nil {
		return 0
	}
	return n
}

// wire is a reply as it goes over the wire: its lines with code and hyphens, ended by CRLF.
func wire(reply string) []byte {
	lines := strings.Split(reply, "\n")
	var out []byte
	for i, line := range lines {
		if i > 0 && !replyLine.MatchString(line) {
			line = reply[:3] + " " + line
		}
		if i < len(lines)-1 && len(line) >= 4 {
			line = line[:3] + "-" + line[4:]
		}
		out = append(append(out, line...), "\r\n"...)
	}
	return out
}
