// Package filter judges messages: it checks SPF and DKIM and asks the operator's rules what is to become of a message
// for each of its recipients.
//
// The checks never decide by themselves. They write what they found into the verdict and into an Authentication-Results
// field; the rules, which are expressions in CEL, decide. See docs/filter.md.
package filter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

const scope = "github.com/rohrpost/rohrpost/filter"

// Options is what a filter needs from outside.
type Options struct {
	// Resolver answers the questions to the DNS. Required while a check is enabled.
	Resolver Resolver
	// Logger is told of rules that fail. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the spans. Default: otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Input is a message to be judged.
type Input struct {
	// ID is the message's id, for spans and logs.
	ID string
	// Envelope is the message's envelope, with at least one recipient.
	Envelope *mailv1.Envelope
	// Parsed is what the parser read; nil if it could not.
	Parsed *mailv1.ParsedMessage
	// Content opens the content from its first octet, without any of our edits. It is called at most once. Close may
	// be called while a Read is under way, to end it.
	Content func() (io.ReadCloser, error)
	// Size is the number of octets of the content.
	Size int64
}

// Filter judges messages. It is safe for concurrent use.
type Filter struct {
	cfg    Config
	lookup lookup
	policy *policy
	log    *slog.Logger
	tracer trace.Tracer
	slots  chan struct{} // one for each message that is being judged
}

// New makes a filter. It fails where the configuration is not valid, as [Config.Validate] does.
func New(cfg Config, opts Options) (*Filter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Resolver == nil && (cfg.SPF.Enabled || cfg.DKIM.Enabled) {
		return nil, errors.New("filter: SPF and DKIM need a resolver")
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	p, err := newPolicy(cfg)
	if err != nil {
		return nil, err
	}
	return &Filter{
		cfg:    cfg,
		lookup: lookup{opts.Resolver},
		policy: p,
		log:    opts.Logger,
		tracer: opts.TracerProvider.Tracer(scope),
		slots:  make(chan struct{}, cfg.MaxConcurrent),
	}, nil
}

// Judge makes the checks and asks the rules. The verdict has exactly one entry for each recipient of the envelope, in
// its order. An error means that the message could not be judged here and now, as when its content could not be read or
// ctx ended; it never means that something is wrong with the message.
func (f *Filter) Judge(ctx context.Context, in Input) (_ *mailv1.Verdict, err error) {
	ctx, span := f.tracer.Start(ctx, "filter.judge", trace.WithAttributes(messageID(in)))
	defer span.End()
	defer func() { recordError(span, err) }()
	if len(in.Envelope.GetRecipients()) == 0 {
		return nil, errors.New("filter: the envelope has no recipients")
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a place to judge: %w", context.Cause(ctx))
	}

	found, err := f.check(ctx, in)
	if err != nil {
		return nil, err
	}
	subject := &subject{
		envelope: in.Envelope, parsed: in.Parsed, size: in.Size,
		results: summarize(found), unscanned: f.unscanned(in, found),
	}
	recipients, failures, err := f.policy.judge(ctx, subject)
	if err != nil {
		return nil, err
	}
	for _, failure := range failures {
		f.log.WarnContext(ctx, "rule could not be evaluated",
			slog.String("rohrpost.message.id", in.ID), slog.String("error", failure.GetDetail()))
	}
	verdict := &mailv1.Verdict{
		Recipients: recipients,
		Edits:      f.edits(in.Envelope, found, recipients),
		Results:    append(found.results(), failures...),
	}
	span.SetAttributes(judgeAttributes(verdict, subject.results)...)
	return verdict, nil
}

// findings is what the checks found out.
type findings struct {
	spf    []authResult // at most one
	dkim   []authResult // one for each signature, or one that says why there is none
	forged []string     // starts of Authentication-Results values that are ours by name but not by origin
}

// check runs the checks side by side.
func (f *Filter) check(ctx context.Context, in Input) (*findings, error) {
	var found findings
	var spfErr, contentErr error
	var wg sync.WaitGroup
	if f.cfg.SPF.Enabled {
		wg.Go(func() {
			defer recoverTo(&spfErr)
			found.spf = f.checkSPF(ctx, in)
		})
	}
	wg.Go(func() {
		defer recoverTo(&contentErr)
		found.dkim, found.forged, contentErr = f.checkContent(ctx, in)
	})
	wg.Wait()
	if err := errors.Join(spfErr, contentErr); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // else the end of the job would pass for an outage of the DNS
		return nil, fmt.Errorf("judging: %w", context.Cause(ctx))
	}
	return &found, nil
}

// recoverTo makes an error of a panic, which in a goroutine of its own would end the process and with it the work on
// every other message (promise P5).
func recoverTo(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("filter: a check panicked: %v\n%s", p, debug.Stack())
	}
}

// unscanned tells what becomes of recipients that no rule decided about, where something could not be looked at
// (case I1): the most careful of the policies that apply, and "" where all was looked at.
func (f *Filter) unscanned(in Input, found *findings) Action {
	var action Action
	add := func(own Action) {
		if own == "" {
			own = f.cfg.OnUnscanned
		}
		if care(own) > care(action) {
			action = own
		}
	}
	if in.Parsed == nil {
		add("")
	}
	if summary(found.spf) == resultTempError {
		add(f.cfg.SPF.OnUnscanned)
	}
	if summary(found.dkim) == resultTempError {
		add(f.cfg.DKIM.OnUnscanned)
	}
	return action
}

func messageID(in Input) attribute.KeyValue { return attribute.String("rohrpost.message.id", in.ID) }

func recordError(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}
