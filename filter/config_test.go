package filter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/filter"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := filter.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

// Each error names the key and the mend; errors in expressions also name the rule and the position.
func TestValidate(t *testing.T) {
	rule := func(change func(*filter.Rule)) func(*filter.Config) {
		return func(c *filter.Config) {
			r := filter.Rule{Name: "strict", When: "true", Action: filter.Reject}
			change(&r)
			c.Rules = []filter.Rule{{Name: "fine", Action: filter.Accept}, r}
		}
	}
	when := func(expression string) func(*filter.Config) {
		return rule(func(r *filter.Rule) { r.When = expression })
	}
	for _, c := range []struct {
		name   string
		change func(*filter.Config)
		want   []string
	}{
		{"authserv-id", func(c *filter.Config) { c.AuthservID = "a; b" }, []string{"filter.authserv_id", "mx.example.org"}},
		{"spf time-out", func(c *filter.Config) { c.SPF.Timeout = 0 }, []string{"filter.spf.timeout", "100ms"}},
		{"dkim signatures", func(c *filter.Config) { c.DKIM.MaxSignatures = 0 }, []string{"filter.dkim.max_signatures", "from 1"}},
		{"dkim header", func(c *filter.Config) { c.DKIM.MaxHeader = 1 }, []string{"filter.dkim.max_header", "1KiB"}},
		{"concurrency", func(c *filter.Config) { c.MaxConcurrent = 0 }, []string{"filter.max_concurrent"}},
		{"time-outs out of order", func(c *filter.Config) { c.PolicyTimeout = time.Millisecond }, []string{"filter.policy_timeout", "500ms"}},
		{"default action", func(c *filter.Config) { c.DefaultAction = filter.Tag }, []string{"filter.default_action", "accept, reject"}},
		{"on error", func(c *filter.Config) { c.OnError = filter.Accept }, []string{"filter.on_error", "defer, hold, continue"}},
		{"on unscanned", func(c *filter.Config) { c.DKIM.OnUnscanned = filter.Reject }, []string{"filter.dkim.on_unscanned"}},
		{"action", rule(func(r *filter.Rule) { r.Action = "bounce" }), []string{`filter.rules[1] "strict"`, "action", "reject"}},
		{"no name", rule(func(r *filter.Rule) { r.Name = "" }), []string{"filter.rules[1]", "name"}},
		{"name twice", rule(func(r *filter.Rule) { r.Name = "fine" }), []string{"filter.rules[1]", "another rule"}},
		{"tag without tags", rule(func(r *filter.Rule) { r.Action = filter.Tag }), []string{"tags", "at least one"}},
		{"bad tag", rule(func(r *filter.Rule) { r.Tags = []string{"a b"} }), []string{"tags", `"a b"`}},
		{"reply of accept", rule(func(r *filter.Rule) { r.Action = filter.Accept; r.Reply.Text = "x" }), []string{"reply", "remove"}},
		{"reply class", rule(func(r *filter.Rule) { r.Reply.Code = 451 }), []string{"reply.code", "500 to 599"}},
		{"reply that closes", rule(func(r *filter.Rule) { r.Action, r.Reply = filter.Defer, filter.Reply{Code: 421} }), []string{"reply.code", "421", "give 451"}},
		{"enhanced class", rule(func(r *filter.Rule) { r.Reply.Enhanced = "4.7.1" }), []string{"reply.enhanced", "5.7.1"}},
		{"reply text", rule(func(r *filter.Rule) { r.Reply.Text = "a\r\n250 ok" }), []string{"reply.text", "one line"}},
		{"syntax", when("results.spf == 'fail' &&"), []string{`filter.rules[1] "strict"`, "line 1, column 25", "check quotes"}},
		{"syntax in line 2", when("true &&\n  (size > 1"), []string{"line 2, column 12"}},
		{"unknown variable", when("sender == 'x'"), []string{"line 1, column 1", "undeclared reference to 'sender'", "use envelope"}},
		{"unknown field", when("envelope.from == 'x'"), []string{"column 9", "undefined field 'from'", "proto/rohrpost/mail/v1"}},
		{"types", when("size == 'big'"), []string{"column 6", "no matching overload", "one type"}},
		{"no bool", when("envelope.sender"), []string{"yields string", "bool"}},
		{"unknown check", when("results.dmarc == 'fail'"), []string{"column 8", `no check "dmarc"`, "spf and dkim"}},
		{"unknown check by index", when("results['dmarc'] == 'fail'"), []string{`no check "dmarc"`}},
		{"bad pattern", when("like(recipient, 'a.*.example')"), []string{"column 5", `pattern "a.*.example"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := filter.DefaultConfig()
			c.change(&cfg)
			err := cfg.Validate()
			if err == nil {
				t.Fatal("valid")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if _, err := filter.New(cfg, filter.Options{Resolver: &zone{}}); err == nil {
				t.Error("New took it")
			}
		})
	}
}

func TestNewNeedsResolver(t *testing.T) {
	if _, err := filter.New(filter.DefaultConfig(), filter.Options{}); err == nil {
		t.Error("no error without a resolver")
	}
	cfg := filter.DefaultConfig()
	cfg.SPF.Enabled, cfg.DKIM.Enabled = false, false
	if _, err := filter.New(cfg, filter.Options{}); err != nil {
		t.Error(err)
	}
}
