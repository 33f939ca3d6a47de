package filter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

var (
	tagSyntax      = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	enhancedSyntax = regexp.MustCompile(`^[45]\.\d{1,3}\.\d{1,3}$`) // RFC 3463, section 2
	authservSyntax = regexp.MustCompile(`^[A-Za-z0-9._-]{0,255}$`)
)

// Validate tells everything that is wrong with the configuration. Each error names the key and the mend; an error in an
// expression names the rule and the position as well.
func (c Config) Validate() error {
	errs := []error{
		c.validateLimits(),
		oneOf("filter.default_action", c.DefaultAction, Accept, Reject, Defer, Hold, Discard),
		oneOf("filter.on_unscanned", c.OnUnscanned, Accept, Defer, Hold),
		oneOf("filter.on_error", c.OnError, Defer, Hold, Continue),
		oneOf("filter.spf.on_unscanned", c.SPF.OnUnscanned, "", Accept, Defer, Hold),
		oneOf("filter.dkim.on_unscanned", c.DKIM.OnUnscanned, "", Accept, Defer, Hold),
	}
	if !authservSyntax.MatchString(c.AuthservID) {
		errs = append(errs, fmt.Errorf("filter.authserv_id: %q is not a host name; give one such as mx.example.org", c.AuthservID))
	}
	names := map[string]bool{}
	for i, r := range c.Rules {
		if err := r.validate(); err != nil {
			errs = append(errs, fmt.Errorf("filter.rules[%d] %q: %w", i, r.Name, err))
		}
		if names[r.Name] {
			errs = append(errs, fmt.Errorf("filter.rules[%d] %q: another rule has this name; choose a new one", i, r.Name))
		}
		names[r.Name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := newPolicy(c)
	return err
}

func (c Config) validateLimits() error {
	errs := []error{
		between("filter.max_concurrent", c.MaxConcurrent, 1, 10_000),
		between("filter.rule_timeout", c.RuleTimeout, time.Millisecond, 10*time.Second),
		between("filter.policy_timeout", c.PolicyTimeout, c.RuleTimeout, 5*time.Minute),
		between("filter.rule_cost", c.RuleCost, 1_000, 1<<40),
	}
	if c.SPF.Enabled {
		errs = append(errs, between("filter.spf.timeout", c.SPF.Timeout, 100*time.Millisecond, 5*time.Minute))
	}
	if c.DKIM.Enabled {
		errs = append(errs,
			between("filter.dkim.timeout", c.DKIM.Timeout, 100*time.Millisecond, 5*time.Minute),
			between("filter.dkim.max_signatures", c.DKIM.MaxSignatures, 1, 100))
	}
	// The header section is also read for forged results, with DKIM or without.
	errs = append(errs, between("filter.dkim.max_header", c.DKIM.MaxHeader, bytesize.KiB, 16*bytesize.MiB))
	return errors.Join(errs...)
}

func (r Rule) validate() error {
	errs := []error{oneOf("action", r.Action, Accept, Tag, Reject, Defer, Hold, Discard)}
	if r.Name == "" || len(r.Name) > 100 || !printable(r.Name) {
		errs = append(errs, errors.New("name: give every rule a name of 1 to 100 printable ASCII characters"))
	}
	if r.Action == Tag && len(r.Tags) == 0 {
		errs = append(errs, errors.New("tags: the action tag needs at least one"))
	}
	for _, tag := range r.Tags {
		if !tagSyntax.MatchString(tag) {
			errs = append(errs, fmt.Errorf("tags: %q may have 1 to 64 letters, digits, dots, hyphens and underscores only", tag))
		}
	}
	return errors.Join(append(errs, r.Reply.validate(r.Action))...)
}

func (r Reply) validate(action Action) error {
	if r == (Reply{}) {
		return nil
	}
	class := 5
	switch action {
	case Reject:
	case Defer:
		class = 4
	default:
		return errors.New("reply: only the actions reject and defer have one; remove it")
	}
	var errs []error
	if r.Code != 0 && r.Code/100 != class {
		errs = append(errs, fmt.Errorf("reply.code: %d must be from %d00 to %d99 with the action %s", r.Code, class, class, action))
	}
	if r.Code == 421 { // RFC 5321, section 3.8
		errs = append(errs, errors.New("reply.code: 421 would say that the connection closes; give 451, or another from 400 to 499"))
	}
	if r.Enhanced != "" && (!enhancedSyntax.MatchString(r.Enhanced) || int(r.Enhanced[0]-'0') != class) {
		errs = append(errs, fmt.Errorf("reply.enhanced: %q must be of the form %d.7.1 with the action %s", r.Enhanced, class, action))
	}
	if len(r.Text) > 400 || !printable(r.Text) {
		errs = append(errs, errors.New("reply.text: want one line of at most 400 printable ASCII characters"))
	}
	return errors.Join(errs...)
}

func between[T int | uint64 | time.Duration | bytesize.Size](key string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("%s: %v must be from %v to %v", key, v, least, most)
	}
	return nil
}

func oneOf(key string, v Action, allowed ...Action) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	var words []string
	for _, a := range allowed {
		if a != "" {
			words = append(words, string(a))
		}
	}
	return fmt.Errorf("%s: %q must be one of %s", key, v, strings.Join(words, ", "))
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
