package filter

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// policy is the rules, compiled. It is immutable and safe for concurrent use.
type policy struct {
	cfg   Config
	rules []compiledRule
}

type compiledRule struct {
	Rule
	program cel.Program // nil: always
	// perRecipient says whether the expression may yield another value for another recipient.
	perRecipient bool
}

// newPolicy compiles the rules. Its errors name the rule, the position and the mend.
func newPolicy(cfg Config) (*policy, error) {
	env, err := newEnv()
	if err != nil {
		return nil, fmt.Errorf("filter: preparing CEL: %w", err)
	}
	p := &policy{cfg: cfg}
	var errs []error
	for i, r := range cfg.Rules {
		compiled, err := compile(env, r, cfg.RuleCost)
		if err != nil {
			errs = append(errs, fmt.Errorf("filter.rules[%d] %q: %w", i, r.Name, err))
		}
		p.rules = append(p.rules, compiled)
	}
	return p, errors.Join(errs...)
}

// newEnv declares what rules may use; docs/filter.md lists it.
func newEnv() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Container("rohrpost.mail.v1"),
		cel.Types(&mailv1.Envelope{}, &mailv1.ParsedMessage{}),
		cel.Variable("envelope", cel.ObjectType("rohrpost.mail.v1.Envelope")),
		cel.Variable("message", cel.ObjectType("rohrpost.mail.v1.ParsedMessage")),
		cel.Variable("parsed", cel.BoolType),
		cel.Variable("recipient", cel.StringType),
		cel.Variable("results", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("size", cel.IntType),
		cel.Variable("tags", cel.ListType(cel.StringType)),
		cel.Function("domain", cel.Overload("domain_string", []*cel.Type{cel.StringType}, cel.StringType,
			cel.UnaryBinding(celDomain))),
		cel.Function("like", cel.Overload("like_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(celLike))),
		ext.Strings(),
		ext.Network(),
	)
}

// celDomain is the domain of an address in lower case.
func celDomain(v ref.Val) ref.Val {
	address, _ := v.Value().(string)
	return types.String(strings.ToLower(domainOf(address)))
}

// celLike matches an address or domain against a pattern.
func celLike(address, text ref.Val) ref.Val {
	s, _ := text.Value().(string)
	a, _ := address.Value().(string)
	p, err := pattern.Parse(s)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(p.Match(a))
}

func compile(env *cel.Env, r Rule, cost uint64) (compiledRule, error) {
	compiled := compiledRule{Rule: r}
	if strings.TrimSpace(r.When) == "" {
		return compiled, nil
	}
	checked, issues := env.Compile(r.When)
	if issues.Err() != nil {
		return compiled, positioned(r.When, issues)
	}
	if checked.OutputType() != cel.BoolType {
		return compiled, fmt.Errorf("when: the expression yields %s; compare it so that it yields a bool", checked.OutputType())
	}
	if err := validateConstants(checked); err != nil {
		return compiled, err
	}
	program, err := env.Program(checked, cel.CostLimit(cost), cel.InterruptCheckFrequency(100))
	if err != nil {
		return compiled, fmt.Errorf("when: %w", err)
	}
	compiled.program = program
	for _, reference := range checked.NativeRep().ReferenceMap() {
		if reference.Name == "recipient" || reference.Name == "tags" {
			compiled.perRecipient = true
		}
	}
	return compiled, nil
}

// positioned puts the first error of the compiler into one line with its place and the mend.
func positioned(expression string, issues *cel.Issues) error {
	e := issues.Errors()[0]
	message, _, _ := strings.Cut(e.Message, "\n")
	mend := "correct the expression"
	switch {
	case strings.Contains(message, "undeclared reference"):
		mend = "use envelope, message, parsed, recipient, results, size, tags or a function of docs/filter.md"
	case strings.Contains(message, "undefined field"):
		mend = "see the fields in proto/rohrpost/mail/v1"
	case strings.Contains(message, "no matching overload"):
		mend = "compare and combine values of one type"
	case strings.Contains(message, "Syntax error"):
		mend = "check quotes, parentheses and operators"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(expression), "\n")
	return fmt.Errorf("when: line %d, column %d: %s; %s (in %q)",
		e.Location.Line(), e.Location.Column()+1, message, mend, first(line, 120))
}

// validateConstants finds mistakes that the types do not tell: names of checks that there are not, and patterns that
// are none.
func validateConstants(checked *cel.Ast) error {
	var errs []error
	rep := checked.NativeRep()
	ast.PostOrderVisit(rep.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		var err error
		switch e.Kind() {
		case ast.SelectKind:
			if s := e.AsSelect(); isResults(s.Operand()) && !s.IsTestOnly() {
				err = knownCheck(s.FieldName())
			}
		case ast.CallKind:
			err = validateCall(e.AsCall())
		}
		if err != nil {
			at := rep.SourceInfo().GetStartLocation(e.ID())
			errs = append(errs, fmt.Errorf("when: line %d, column %d: %w", at.Line(), at.Column()+1, err))
		}
	}))
	return errors.Join(errs...)
}

func validateCall(call ast.CallExpr) error {
	args := call.Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind {
		return nil
	}
	constant, ok := args[1].AsLiteral().Value().(string)
	if !ok {
		return nil
	}
	switch call.FunctionName() {
	case "like":
		_, err := pattern.Parse(constant)
		return err
	case "_[_]":
		if isResults(args[0]) {
			return knownCheck(constant)
		}
	}
	return nil
}

func isResults(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "results" }

func knownCheck(name string) error {
	if name == "spf" || name == "dkim" {
		return nil
	}
	return fmt.Errorf("there is no check %q; results has spf and dkim", name)
}
