package filter

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// subject is what rules are asked about.
type subject struct {
	envelope  *mailv1.Envelope
	parsed    *mailv1.ParsedMessage
	size      int64
	results   map[string]string
	unscanned Action // what takes the place of the default action; "" where all was looked at
}

// answer is what an expression yielded.
type answer struct {
	matched bool
	err     error
}

// evaluation is the rules at work on one message. It is used by one goroutine.
type evaluation struct {
	policy   *policy
	subject  *subject
	vars     map[string]any
	shared   map[int]answer // by rule, of those that do not depend on the recipient
	failures []*mailv1.CheckResult
	failed   map[int]bool // rules that have their entry in failures
}

// judge asks the rules for each recipient. It also returns a result for each rule that could not be evaluated. It fails
// only where ctx ended.
func (p *policy) judge(ctx context.Context, s *subject) ([]*mailv1.RecipientVerdict, []*mailv1.CheckResult, error) {
	inner, cancel := context.WithTimeout(ctx, p.cfg.PolicyTimeout)
	defer cancel()
	e := &evaluation{policy: p, subject: s, shared: map[int]answer{}, failed: map[int]bool{}}
	message := s.parsed
	if message == nil {
		message = &mailv1.ParsedMessage{}
	}
	e.vars = map[string]any{
		"envelope": s.envelope, "message": message, "parsed": s.parsed != nil, "results": s.results, "size": s.size,
	}
	var verdicts []*mailv1.RecipientVerdict
	for _, r := range s.envelope.GetRecipients() {
		verdicts = append(verdicts, e.recipient(inner, r.GetAddress()))
	}
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("asking the rules: %w", context.Cause(ctx))
	}
	return verdicts, e.failures, nil
}

// recipient asks the rules in order for one recipient.
func (e *evaluation) recipient(ctx context.Context, address string) *mailv1.RecipientVerdict {
	tags := []string{}
	for i := range e.policy.rules {
		r := &e.policy.rules[i]
		if !concerns(r.Recipients, address) {
			continue
		}
		a := e.ask(ctx, i, address, tags)
		if a.err != nil {
			e.fail(i, a.err)
			if e.policy.cfg.OnError != Continue {
				return decision(e.policy.cfg.OnError, Reply{Text: "Policy could not be applied, try again later"}, r.Name, tags)
			}
			continue
		}
		if !a.matched {
			continue
		}
		for _, tag := range r.Tags {
			if !slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
		}
		if r.Action != Tag {
			return decision(r.Action, r.Reply, r.Name, tags)
		}
	}
	if care(e.subject.unscanned) > care(Accept) {
		return decision(e.subject.unscanned, Reply{Text: "Message could not be checked, try again later"}, "", tags)
	}
	return decision(e.policy.cfg.DefaultAction, Reply{}, "", tags)
}

// ask evaluates a rule, once a message where it does not depend on the recipient.
func (e *evaluation) ask(ctx context.Context, i int, address string, tags []string) answer {
	r := &e.policy.rules[i]
	if r.program == nil {
		return answer{matched: true}
	}
	if a, ok := e.shared[i]; ok {
		return a
	}
	e.vars["recipient"], e.vars["tags"] = address, slices.Clone(tags)
	ctx, cancel := context.WithTimeout(ctx, e.policy.cfg.RuleTimeout)
	defer cancel()
	a := answer{err: ctx.Err()} // an expression without loops does not look at the context itself
	if a.err == nil {
		value, _, err := r.program.ContextEval(ctx, e.vars)
		a.err = err
		if err == nil {
			a.matched, _ = value.Value().(bool) // the compiler saw to it that it is one
		}
	}
	if !r.perRecipient {
		e.shared[i] = a
	}
	return a
}

// fail notes, once a rule, that it could not be evaluated.
func (e *evaluation) fail(i int, err error) {
	if e.failed[i] {
		return
	}
	e.failed[i] = true
	e.failures = append(e.failures, &mailv1.CheckResult{
		Check: "policy", Result: resultTempError, Property: "policy.rule=" + e.policy.rules[i].Name,
		Detail: text(fmt.Sprintf("rule %q: %v", e.policy.rules[i].Name, err)),
	})
}

func concerns(patterns []pattern.Pattern, address string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p pattern.Pattern) bool { return p.Match(address) })
}

func decision(action Action, reply Reply, rule string, tags []string) *mailv1.RecipientVerdict {
	v := &mailv1.RecipientVerdict{Rule: rule, Tags: tags}
	switch action {
	case Reject:
		v.Action, v.Reply = mailv1.Action_ACTION_REJECT, reply.or(550, "5.7.1", "Refused by policy")
	case Defer:
		v.Action, v.Reply = mailv1.Action_ACTION_DEFER, reply.or(451, "4.7.1", "Deferred by policy, try again later")
	case Hold:
		v.Action = mailv1.Action_ACTION_HOLD
	case Discard:
		v.Action = mailv1.Action_ACTION_DISCARD
	default:
		v.Action = mailv1.Action_ACTION_ACCEPT
	}
	return v
}

// or fills what the configuration left open.
func (r Reply) or(code int32, enhanced, text string) *mailv1.Reply {
	reply := &mailv1.Reply{Code: code, EnhancedCode: enhanced, Text: text}
	if r.Code != 0 {
		reply.Code = int32(r.Code) // from 400 to 599, as Validate saw to
	}
	if r.Enhanced != "" {
		reply.EnhancedCode = r.Enhanced
	}
	if r.Text != "" {
		reply.Text = r.Text
	}
	return reply
}

// care orders the policies for what was not scanned: the most careful wins.
func care(a Action) int { return slices.Index([]Action{"", Accept, Defer, Hold}, a) }

// sharedTags are the tags that every recipient has to whom the message may go. Edits serve all recipients alike, so
// that a tag of one must not show in the copy of another.
func sharedTags(recipients []*mailv1.RecipientVerdict) []string {
	var shared []string
	started := false
	for _, r := range recipients {
		if r.GetAction() == mailv1.Action_ACTION_REJECT || r.GetAction() == mailv1.Action_ACTION_DISCARD {
			continue
		}
		if !started {
			shared, started = slices.Clone(r.GetTags()), true
			continue
		}
		shared = slices.DeleteFunc(shared, func(tag string) bool { return !slices.Contains(r.GetTags(), tag) })
	}
	return shared
}

// judgeAttributes tells a span what came out: each check's result, and the actions and rules without repeats.
func judgeAttributes(v *mailv1.Verdict, results map[string]string) []attribute.KeyValue {
	var actions, rules []string
	for _, r := range v.GetRecipients() {
		if word := actionWord(r.GetAction()); !slices.Contains(actions, word) {
			actions = append(actions, word)
		}
		if r.GetRule() != "" && !slices.Contains(rules, r.GetRule()) {
			rules = append(rules, r.GetRule())
		}
	}
	return []attribute.KeyValue{
		attribute.StringSlice("rohrpost.filter.actions", actions),
		attribute.StringSlice("rohrpost.filter.rules", rules),
		attribute.String("rohrpost.filter.spf", results["spf"]),
		attribute.String("rohrpost.filter.dkim", results["dkim"]),
	}
}

func actionWord(a mailv1.Action) string {
	switch a {
	case mailv1.Action_ACTION_REJECT:
		return string(Reject)
	case mailv1.Action_ACTION_DEFER:
		return string(Defer)
	case mailv1.Action_ACTION_HOLD:
		return string(Hold)
	case mailv1.Action_ACTION_DISCARD:
		return string(Discard)
	default:
		return string(Accept)
	}
}
