package filter

import (
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// Config is the section `filter` of the configuration.
type Config struct {
	// AuthservID is the name in our Authentication-Results fields (RFC 8601, section 2.5); fields that came in under
	// this name are removed as forged. Empty: the host name of the gateway that received the message.
	AuthservID string `yaml:"authserv_id"`
	// SPF configures the check of RFC 7208.
	SPF SPFConfig `yaml:"spf"`
	// DKIM configures the check of RFC 6376.
	DKIM DKIMConfig `yaml:"dkim"`
	// MaxConcurrent is how many messages are judged at a time; others wait. From 1 to 10 000.
	MaxConcurrent int `yaml:"max_concurrent"`
	// Rules are asked in order for each recipient; the first that matches with an action other than tag decides.
	Rules []Rule `yaml:"rules"`
	// DefaultAction is for recipients that no rule decided about: accept, reject, defer, hold or discard.
	DefaultAction Action `yaml:"default_action"`
	// OnUnscanned takes the place of DefaultAction where the message could not be parsed or a check ended as temperror:
	// accept (then DefaultAction stands), defer or hold.
	OnUnscanned Action `yaml:"on_unscanned"`
	// OnError is for a recipient for whom a rule could not be evaluated: defer or hold, without asking further rules,
	// or continue, as if the rule had not matched.
	OnError Action `yaml:"on_error"`
	// RuleTimeout is how long one evaluation of one rule may take. From 1ms to 10s.
	RuleTimeout time.Duration `yaml:"rule_timeout"`
	// PolicyTimeout is how long all rules for all recipients of a message may take. From RuleTimeout to 5m.
	PolicyTimeout time.Duration `yaml:"policy_timeout"`
	// RuleCost is how much one evaluation may cost in units of CEL, about one for each step and for each 10 octets of
	// text that are looked at. From 1 000.
	RuleCost uint64 `yaml:"rule_cost"`
}

// SPFConfig configures the check of RFC 7208.
type SPFConfig struct {
	// Enabled says whether SPF is checked.
	Enabled bool `yaml:"enabled"`
	// Timeout is how long all look-ups together may take before the result is temperror. From 100ms to 5m (RFC 7208,
	// section 4.6.4 advises at least 20s).
	Timeout time.Duration `yaml:"timeout"`
	// OnUnscanned takes the place of filter.on_unscanned where SPF ended as temperror. Empty: the same.
	OnUnscanned Action `yaml:"on_unscanned"`
}

// DKIMConfig configures the check of RFC 6376.
type DKIMConfig struct {
	// Enabled says whether signatures are verified.
	Enabled bool `yaml:"enabled"`
	// Timeout is how long all signatures of a message together may take before the result is temperror, reading the
	// content included. From 100ms to 5m.
	Timeout time.Duration `yaml:"timeout"`
	// MaxSignatures is how many signatures of a message are verified, from the top. From 1 to 100.
	MaxSignatures int `yaml:"max_signatures"`
	// MaxHeader is the longest header section that is looked at; signatures of a message with a longer one are not
	// verified. From 1KiB to 16MiB.
	MaxHeader bytesize.Size `yaml:"max_header"`
	// OnUnscanned takes the place of filter.on_unscanned where DKIM ended as temperror. Empty: the same.
	OnUnscanned Action `yaml:"on_unscanned"`
}

// Rule says what is to become of a message if an expression holds.
type Rule struct {
	// Name names the rule in verdicts, journals and errors. Unique, at most 100 printable octets.
	Name string `yaml:"name"`
	// When is an expression in CEL that yields a boolean. Empty: always.
	When string `yaml:"when"`
	// Recipients are the patterns of which a recipient must match one. Empty: all recipients.
	Recipients []pattern.Pattern `yaml:"recipients"`
	// Action is accept, tag, reject, defer, hold or discard. tag goes on with the next rule, all others decide.
	Action Action `yaml:"action"`
	// Tags are given to the recipient where the rule matches: letters, digits, dots, hyphens and underscores, at most
	// 64. Required with tag, possible with all others.
	Tags []string `yaml:"tags"`
	// Reply is what the client or the log is told where the action is reject or defer.
	Reply Reply `yaml:"reply"`
}

// Reply is an SMTP reply in the configuration. The zero value means the usual reply of the action.
type Reply struct {
	// Code is from 500 to 599 with reject (default 550), from 400 to 499 but 421 with defer (default 451).
	Code int `yaml:"code"`
	// Enhanced is the enhanced status code (RFC 3463) of the same class. Default 5.7.1 or 4.7.1.
	Enhanced string `yaml:"enhanced"`
	// Text is one line of printable ASCII, at most 400 octets.
	Text string `yaml:"text"`
}

// Action is what is to be done with a message for a recipient, in the words of the configuration.
type Action string

// The actions.
const (
	Accept  Action = "accept"  // deliver it
	Tag     Action = "tag"     // give tags and ask the next rule
	Reject  Action = "reject"  // refuse it for good
	Defer   Action = "defer"   // filter it again later
	Hold    Action = "hold"    // keep it for an operator
	Discard Action = "discard" // end it without delivery or notification

	// Continue stands only in on_error: as if the rule had not matched.
	Continue Action = "continue"
)

// DefaultConfig returns the configuration that holds where nothing is configured: both checks, no rules, everything is
// accepted.
func DefaultConfig() Config {
	return Config{
		SPF:           SPFConfig{Enabled: true, Timeout: 20 * time.Second},
		DKIM:          DKIMConfig{Enabled: true, Timeout: 20 * time.Second, MaxSignatures: 8, MaxHeader: bytesize.MiB},
		MaxConcurrent: 64,
		DefaultAction: Accept,
		OnUnscanned:   Accept,
		OnError:       Defer,
		RuleTimeout:   500 * time.Millisecond,
		PolicyTimeout: 10 * time.Second,
		RuleCost:      10_000_000,
	}
}
