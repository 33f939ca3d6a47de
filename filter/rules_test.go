package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/rohrpost/rohrpost/filter"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

const (
	accept  = mailv1.Action_ACTION_ACCEPT
	reject  = mailv1.Action_ACTION_REJECT
	later   = mailv1.Action_ACTION_DEFER
	hold    = mailv1.Action_ACTION_HOLD
	discard = mailv1.Action_ACTION_DISCARD
)

func TestRules(t *testing.T) {
	refused := &mailv1.Reply{Code: 550, EnhancedCode: "5.7.1", Text: "Refused by policy"}
	for _, c := range []struct {
		name  string
		rules []filter.Rule
		want  *mailv1.RecipientVerdict
	}{
		{"no rules", nil, &mailv1.RecipientVerdict{Action: accept}},
		{"none matches", []filter.Rule{{Name: "r", When: "false", Action: filter.Reject}}, &mailv1.RecipientVerdict{Action: accept}},
		{"accept", []filter.Rule{{Name: "r", Action: filter.Accept}}, &mailv1.RecipientVerdict{Action: accept, Rule: "r"}},
		{"reject", []filter.Rule{{Name: "r", Action: filter.Reject}}, &mailv1.RecipientVerdict{Action: reject, Rule: "r", Reply: refused}},
		{
			"reject with a reply",
			[]filter.Rule{{
				Name: "r", Action: filter.Reject,
				Reply: filter.Reply{Code: 554, Enhanced: "5.7.26", Text: "No"},
			}},
			&mailv1.RecipientVerdict{Action: reject, Rule: "r", Reply: &mailv1.Reply{Code: 554, EnhancedCode: "5.7.26", Text: "No"}},
		},
		{"defer", []filter.Rule{{Name: "r", Action: filter.Defer}}, &mailv1.RecipientVerdict{
			Action: later, Rule: "r", Reply: &mailv1.Reply{Code: 451, EnhancedCode: "4.7.1", Text: "Deferred by policy, try again later"},
		}},
		{"hold", []filter.Rule{{Name: "r", Action: filter.Hold}}, &mailv1.RecipientVerdict{Action: hold, Rule: "r"}},
		{"discard", []filter.Rule{{Name: "r", Action: filter.Discard}}, &mailv1.RecipientVerdict{Action: discard, Rule: "r"}},
		{
			"the first decides",
			[]filter.Rule{{Name: "1", When: "false", Action: filter.Hold}, {Name: "2", Action: filter.Discard}, {Name: "3", Action: filter.Reject}},
			&mailv1.RecipientVerdict{Action: discard, Rule: "2"},
		},
		{
			"tags add up, once each, and later rules see them",
			[]filter.Rule{
				{Name: "1", Action: filter.Tag, Tags: []string{"a", "b"}},
				{Name: "2", When: "'c' in tags", Action: filter.Reject},
				{Name: "3", When: "'b' in tags", Action: filter.Tag, Tags: []string{"b", "c"}},
				{Name: "4", When: "tags == ['a', 'b', 'c']", Action: filter.Hold, Tags: []string{"d"}},
			},
			&mailv1.RecipientVerdict{Action: hold, Rule: "4", Tags: []string{"a", "b", "c", "d"}},
		},
		{
			"only for other recipients",
			[]filter.Rule{{Name: "1", Recipients: []pattern.Pattern{pattern.MustParse("x@b.example")}, Action: filter.Reject}},
			&mailv1.RecipientVerdict{Action: accept},
		},
		{
			"for this recipient too",
			[]filter.Rule{{
				Name:       "1",
				Recipients: []pattern.Pattern{pattern.MustParse("x@b.example"), pattern.MustParse("b.example")}, Action: filter.Hold,
			}},
			&mailv1.RecipientVerdict{Action: hold, Rule: "1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judge(t, newFilter(t, &zone{}, func(cfg *filter.Config) { cfg.Rules = c.rules }), input(plain))
			if diff := cmp.Diff(c.want, v.GetRecipients()[0], protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What each variable and function yields.
func TestVariables(t *testing.T) {
	for _, when := range []string{
		"envelope.sender == 'ann@a.example'",
		"envelope.reception.client_ip == '192.0.2.1' && cidr('192.0.2.0/24').containsIP(envelope.reception.client_ip)",
		"envelope.body_type == BodyType.BODY_TYPE_UNSPECIFIED",
		"envelope.recipients.size() == 1 && envelope.recipients[0].address == recipient",
		"message.subject == 'Hi' && parsed",
		"message.parts.size() == 0 && message.text == ''",
		"!has(message.sender) && message.sender.address == ''",
		"recipient == 'bob@b.example' && domain(recipient) == 'b.example'",
		"domain('ann@A.Example') == 'a.example' && domain('x') == ''",
		"like(recipient, '*@*') || like(recipient, 'bob@*') && !like(envelope.sender, '*.example.org')",
		"results.spf == 'none' && results['dkim'] == 'none' && !('dmarc' in results)",
		"size == 64 && size > 10",
		"tags == []",
		"recipient.upperAscii().startsWith('BOB')",
	} {
		when = strings.Replace(when, "'*@*'", "'*'", 1)
		in := input(plain)
		in.Size = 64
		v := judge(t, newFilter(t, &zone{}, rules(filter.Rule{Name: "r", When: when, Action: filter.Hold})), in)
		if v.GetRecipients()[0].GetAction() != hold {
			t.Errorf("%s: not matched: %v", when, v)
		}
	}
}

func rules(rs ...filter.Rule) func(*filter.Config) {
	return func(c *filter.Config) { c.Rules = rs }
}

// A message that could not be parsed is an empty one to rules.
func TestUnparsed(t *testing.T) {
	in := input(plain)
	in.Parsed = nil
	v := judge(t, newFilter(t, &zone{}, rules(
		filter.Rule{Name: "r", When: "!parsed && message.subject == '' && message.from.size() == 0", Action: filter.Hold})), in)
	if v.GetRecipients()[0].GetRule() != "r" {
		t.Error(v)
	}
}

func TestRuleErrors(t *testing.T) {
	const slow = `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c,
		[1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a + g > 0)))))))`
	for _, c := range []struct {
		name, when string
		onError    filter.Action
		cost       uint64
		want       mailv1.Action
		rule       string
		detail     string
	}{
		{"defer is the default", "message.from[0].address == 'x'", "", 0, later, "bad", "index out of bounds"},
		{"hold", "message.from[0].address == 'x'", filter.Hold, 0, hold, "bad", "index out of bounds"},
		{"continue", "message.from[0].address == 'x'", filter.Continue, 0, discard, "next", "index out of bounds"},
		{"bad pattern", "like(recipient, recipient + '@@*x')", "", 0, later, "bad", "pattern"},
		{"too dear", slow, "", 10_000, later, "bad", "cost limit"},
		{"too slow", slow, "", 1 << 40, later, "bad", "deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFilter(t, &zone{}, func(cfg *filter.Config) {
				cfg.Rules = []filter.Rule{
					{Name: "bad", When: c.when, Action: filter.Reject}, {Name: "next", Action: filter.Discard},
				}
				if c.name == "too slow" {
					cfg.RuleTimeout = 20 * time.Millisecond
				} else { // however busy the machine is
					cfg.RuleTimeout, cfg.PolicyTimeout = 10*time.Second, time.Minute
				}
				if c.onError != "" {
					cfg.OnError = c.onError
				}
				if c.cost != 0 {
					cfg.RuleCost = c.cost
				}
			})
			v := judge(t, f, input(plain, "bob@b.example", "eve@b.example"))
			for _, r := range v.GetRecipients() {
				if r.GetAction() != c.want || r.GetRule() != c.rule {
					t.Errorf("got %v, want %v by %s", r, c.want, c.rule)
				}
			}
			if got := results(v, "policy"); !slices.Equal(got, []string{"temperror policy.rule=bad"}) {
				t.Errorf("results: %q, want one temperror", got)
			}
			last := v.GetResults()[len(v.GetResults())-1]
			if !strings.Contains(last.GetDetail(), c.detail) {
				t.Errorf("detail %q, want %q in it", last.GetDetail(), c.detail)
			}
		})
	}
}

// A rule that was passed before the fault still decides.
func TestErrorBehindDecision(t *testing.T) {
	v := judge(t, newFilter(t, &zone{}, rules(
		filter.Rule{Name: "first", When: "like(recipient, 'bob@*')", Action: filter.Hold},
		filter.Rule{Name: "bad", When: "message.from[0].address == 'x'", Action: filter.Reject},
	)), input(plain, "bob@b.example", "eve@b.example"))
	if got := []mailv1.Action{v.GetRecipients()[0].GetAction(), v.GetRecipients()[1].GetAction()}; !slices.Equal(got, []mailv1.Action{hold, later}) {
		t.Errorf("got %v", got)
	}
}

func TestHundredRecipients(t *testing.T) {
	var to []string
	for i := range 100 {
		to = append(to, fmt.Sprintf("u%d@d%d.example", i, i%3))
	}
	v := judge(t, newFilter(t, &zone{}, rules(
		filter.Rule{Name: "d0", When: "domain(recipient) == 'd0.example'", Action: filter.Reject},
		filter.Rule{Name: "mark", Action: filter.Tag, Tags: []string{"seen"}},
		filter.Rule{Name: "d1", Recipients: []pattern.Pattern{pattern.MustParse("d1.example")}, Action: filter.Tag, Tags: []string{"one"}},
		filter.Rule{Name: "d1-hold", When: "'one' in tags", Action: filter.Hold},
	)), input(plain, to...))
	for i, r := range v.GetRecipients() {
		want := []*mailv1.RecipientVerdict{
			{Action: reject, Rule: "d0", Reply: r.GetReply()},
			{Action: hold, Rule: "d1-hold", Tags: []string{"seen", "one"}},
			{Action: accept, Tags: []string{"seen"}},
		}[i%3]
		if diff := cmp.Diff(want, r, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", to[i], diff)
		}
	}
	// One copy must not tell of another: only what all have in common is written.
	if got := tagField(v); got != "seen" {
		t.Errorf("tags in the message: %q, want seen", got)
	}
}

// tagField is the value of the field with the tags, "" if there is none.
func tagField(v *mailv1.Verdict) string {
	for _, e := range v.GetEdits() {
		if p := e.GetPrepend(); p.GetName() == "X-Rohrpost-Tags" {
			return p.GetValue()
		}
	}
	return ""
}

func TestTagField(t *testing.T) {
	if got := tagField(judge(t, newFilter(t, &zone{}, nil), input(plain))); got != "" {
		t.Errorf("without tags: %q", got)
	}
	f := newFilter(t, &zone{}, rules(filter.Rule{Name: "r", Action: filter.Tag, Tags: []string{"a", "b"}}))
	if got := tagField(judge(t, f, input(plain))); got != "a,\r\n\tb" {
		t.Errorf("got %q", got)
	}
}
