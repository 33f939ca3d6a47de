// Package deliver sends messages on: it finds the route of each recipient, delivers into Maildirs or to a next hop over
// SMTP, and writes delivery status notifications.
//
// A [Deliverer] makes one [Deliverer.Attempt] for one [Task], which is one message for some of its recipients, and tells
// how it went for each of them. It keeps nothing between attempts but open connections, and never retries by itself: when to try again is
// the spool's business.
//
// Before an attempt passes a point of no return (the final dot of SMTP, the rename in a Maildir) it asks the task's
// permit, once for all recipients. Without the permit nothing is sent (promise P4). What happened after the permit and
// has no clear answer is told as unknown, never as failed (promise P3).
package deliver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// scope is the name of our tracer.
const scope = "github.com/rohrpost/rohrpost/deliver"

// Options are what a Deliverer needs from outside. Each has a usable zero value.
type Options struct {
	// Logger takes a line for each attempt. Nil means slog.Default().
	Logger *slog.Logger
	// TracerProvider gives the tracer. Nil means the global one.
	TracerProvider trace.TracerProvider
	// Dial connects to a next hop. Nil means a net.Dialer. The time-out is in the context.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Deliverer makes attempts. It is safe for concurrent use.
type Deliverer struct {
	cfg    Config
	host   string
	log    *slog.Logger
	tracer trace.Tracer
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	now    func() time.Time
	// sessions are the connections that wait for another message.
	sessions *sessions
}

// New makes a Deliverer. The error is that of [Config.Validate].
func New(cfg Config, opts Options) (*Deliverer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("deliver configuration: %w", err)
	}
	d := &Deliverer{cfg: cfg, host: cfg.hostname(), log: opts.Logger, dial: opts.Dial, now: opts.Now}
	if d.log == nil {
		d.log = slog.Default()
	}
	if d.dial == nil {
		d.dial = (&net.Dialer{}).DialContext
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.sessions = &sessions{
		idle: cfg.ReuseIdle, most: cfg.ReuseMessages, quit: cfg.Timeouts.Quit, kept: map[string][]*session{},
	}
	tp := opts.TracerProvider
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	d.tracer = tp.Tracer(scope)
	if len(cfg.Routes) == 0 {
		d.log.Warn("deliver has no routes, all mail is deferred", "mend", "add some to deliver.routes")
	}
	return d, nil
}

// Close closes the connections that are kept for further messages. Attempts may still be made; theirs are closed at once.
func (d *Deliverer) Close() error {
	d.sessions.close()
	return nil
}

// Task is one message for some of its recipients.
type Task struct {
	// MessageID is the message's id, a UUIDv7 in canonical text. Names of files derive from it.
	MessageID string
	// Envelope is the whole envelope.
	Envelope *mailv1.Envelope
	// Edits are applied to the content, in order.
	Edits []*mailv1.Edit
	// Destination is what the recipients are queued for.
	Destination string
	// Recipients are those to deliver to, by their index in the envelope.
	Recipients []int32
	// Number is the number of this attempt for the destination, from 1.
	Number int32
	// Size is the number of octets of the content. Content of another length is not delivered.
	Size int64
	// Content opens the content at its first octet. It may be called more than once, also at the same time.
	Content func(ctx context.Context) (io.ReadCloser, error)
	// Permit asks for leave to pass the point of no return. It is called at most once, and must return when its context
	// ends.
	Permit func(ctx context.Context) error
	// Received is when the message was received.
	Received time.Time
}

// target is one recipient of an attempt, with how it went.
type target struct {
	recipient int32
	address   string
	status    mailv1.ResultStatus
	reply     *mailv1.Reply
	remote    string // the host that gave the reply; empty for our own words
	// handedOver tells that the next hop writes the notifications from now on. (RFC 3461, section 5.2.1.)
	handedOver bool
}

func (t *target) set(status mailv1.ResultStatus, reply *mailv1.Reply) {
	t.status, t.reply = status, reply
}

// attempt is an attempt under way. It belongs to one goroutine.
type attempt struct {
	Task
	permit  *permit
	targets []*target
	remotes []string
	// failure is the worker's own trouble, such as content that can't be read.
	failure error
}

// all gives every target the same result.
func all(targets []*target, status mailv1.ResultStatus, reply *mailv1.Reply) {
	for _, t := range targets {
		t.set(status, reply)
	}
}

// Attempt tries to deliver. The attempt it returns has a result for each recipient of the task; the notifications are
// those to be sent because of its permanent failures, and of its successes where the sender asked for that.
//
// The error tells that the content could not be read or the edits not be applied and that no permit was asked for, so
// that nothing was sent: the job should be given out again, and the results should not count. It is nil for whatever
// is wrong with the message or the next hop.
func (d *Deliverer) Attempt(ctx context.Context, task Task) (*mailv1.Attempt, []*Notification, error) {
	ctx, span := d.tracer.Start(ctx, "deliver.attempt", trace.WithAttributes(
		attribute.String("rohrpost.message.id", task.MessageID),
		attribute.String("rohrpost.destination", task.Destination),
		attribute.Int("rohrpost.attempt.number", int(task.Number)),
		attribute.Int("rohrpost.recipients", len(task.Recipients)),
	))
	defer span.End()
	started := d.now()

	ctx, stop := context.WithCancel(ctx) // ends the asking for a permit that is no longer needed
	a := &attempt{Task: task, permit: newPermit(task.Permit)}
	defer a.permit.settle()
	defer stop()
	routes := d.run(ctx, a)

	out := &mailv1.Attempt{
		Destination: task.Destination,
		Number:      task.Number,
		StartedAt:   timestamppb.New(started),
		FinishedAt:  timestamppb.New(d.now()),
		Route:       strings.Join(routes, ", "),
		Remote:      cut(strings.Join(a.remotes, ", "), 1000),
	}
	shorten(a.targets)
	for _, t := range a.targets {
		out.Results = append(out.Results, &mailv1.RecipientResult{Recipient: t.recipient, Status: t.status, Reply: t.reply})
	}
	d.note(ctx, span, a, out)
	if a.failure != nil && !a.permit.asked() {
		return out, nil, a.failure
	}
	return out, d.reports(ctx, a), nil
}

// run delivers to each route in turn and returns the names of the routes that were taken.
func (d *Deliverer) run(ctx context.Context, a *attempt) []string {
	recipients := a.Envelope.GetRecipients()
	groups := make(map[*Route][]*target)
	var order []*Route
	for _, index := range a.Recipients {
		t := &target{recipient: index}
		a.targets = append(a.targets, t)
		if index < 0 || int(index) >= len(recipients) {
			a.failure = fmt.Errorf("recipient %d is not in the envelope", index)
			t.set(temporary, newReply(451, "4.3.0", "No such recipient in the envelope"))
			continue
		}
		t.address = recipients[index].GetAddress()
		route := d.route(t.address)
		if groups[route] == nil {
			order = append(order, route)
		}
		groups[route] = append(groups[route], t)
	}
	var names []string
	for _, route := range order {
		if name := d.follow(ctx, a, route, groups[route]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// follow takes one route and returns its name.
func (d *Deliverer) follow(ctx context.Context, a *attempt, route *Route, targets []*target) string {
	if route == nil {
		// A missing route is a fault of the configuration, not of the message: it must not bounce mail.
		all(targets, temporary, newReply(451, "4.4.4", "No route for this recipient is configured"))
		return ""
	}
	switch route.Via {
	case ViaMaildir:
		d.maildir(ctx, a, route, targets)
	case ViaSMTP:
		d.smtp(ctx, a, route, targets)
	case ViaReject:
		all(targets, permanent, route.Reject.reply())
	case ViaDiscard:
		all(targets, mailv1.ResultStatus_RESULT_STATUS_DISCARDED, newReply(250, "2.0.0", "Discarded by a route"))
	}
	return string(route.Via)
}

// route finds the first route that matches, or nil.
func (d *Deliverer) route(address string) *Route {
	for i := range d.cfg.Routes {
		for _, p := range d.cfg.Routes[i].Match {
			if p.Match(address) {
				return &d.cfg.Routes[i]
			}
		}
	}
	return nil
}

// note tells the span and the log how it went.
func (d *Deliverer) note(ctx context.Context, span trace.Span, a *attempt, out *mailv1.Attempt) {
	counts := make(map[mailv1.ResultStatus]int)
	for _, r := range out.GetResults() {
		counts[r.GetStatus()]++
	}
	span.SetAttributes(attribute.String("rohrpost.route", out.GetRoute()))
	if a.failure != nil {
		span.RecordError(a.failure)
	}
	if n := counts[temporary] + counts[permanent] + counts[unknown] + counts[untried]; n > 0 {
		span.SetStatus(codes.Error, "not delivered to every recipient")
	}
	attrs := []slog.Attr{
		slog.String("message_id", a.MessageID),
		slog.String("destination", a.Destination),
		slog.Int("attempt", int(a.Number)),
		slog.String("route", out.GetRoute()),
		slog.String("remote", out.GetRemote()),
		slog.Int("delivered", counts[mailv1.ResultStatus_RESULT_STATUS_DELIVERED]),
		slog.Int("temporary", counts[temporary]),
		slog.Int("not_attempted", counts[untried]),
		slog.Int("permanent", counts[permanent]),
		slog.Int("unknown", counts[unknown]),
	}
	if a.failure != nil {
		attrs = append(attrs, slog.String("error", a.failure.Error()))
	}
	d.log.LogAttrs(ctx, slog.LevelInfo, "delivery attempted", attrs...)
}
