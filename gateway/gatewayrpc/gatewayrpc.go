// Package gatewayrpc hands a gateway's messages to spools over gRPC.
//
// A client keeps a stream to each spool of the database that it can reach, and gives a message to the one that owes the
// least; one that had no room, is silent or takes nothing is asked only where no other can take the message. Messages of at
// most [gateway.InlineLimit] octets share that stream, a frame each, as many frames to a send as are ready. A larger message
// has a stream of its own. What a broken stream left without an answer is submitted again under the same id, which the
// spools take once, for as long as its client waits: first to the same spool, which alone can tell what became of it while
// it lives, and to another one where it does not come back.
package gatewayrpc

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/rohrpost/rohrpost/gateway"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// protocolVersion is the highest version of the Submit protocol that is spoken here.
const protocolVersion = 1

// Options are what a client gets from its process.
type Options struct {
	// Gateway is the name for the spool's journals and logs, at most 255 octets. Default: "gateway".
	Gateway string
	// Unreachable is how long messages wait for a spool to come back before their clients are told 451. Default: 3 s.
	Unreachable time.Duration
	// HelloTimeout is how long a spool may take to answer a new stream. Default: 5 s.
	HelloTimeout time.Duration
	// SendTimeout is how long a spool may take nothing of what is sent to it, or answer nothing while another spool could,
	// before its stream is given up. Default: 30 s.
	SendTimeout time.Duration
	// Aside is how long a spool that had no room is asked only where no other can take a message. Default: 1 s.
	Aside time.Duration
	// MinBackoff and MaxBackoff bound the wait before the next try to reach a spool. Default: 50 ms and 1 s.
	MinBackoff, MaxBackoff time.Duration
	// Dial connects to another spool of the same database, by the host:port that a spool told of. It does not wait for the
	// network. Nil: only the given connections are used.
	Dial           func(address string) (Conn, error)
	Logger         *slog.Logger         // default: slog.Default()
	TracerProvider trace.TracerProvider // default: otel.GetTracerProvider()
}

func (o *Options) setDefaults() {
	setDefault(&o.Gateway, "gateway")
	setDefault(&o.Unreachable, 3*time.Second)
	setDefault(&o.HelloTimeout, 5*time.Second)
	setDefault(&o.SendTimeout, 30*time.Second)
	setDefault(&o.Aside, time.Second)
	setDefault(&o.MinBackoff, 50*time.Millisecond)
	setDefault(&o.MaxBackoff, time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Client is a [gateway.Spool]. Run must be running for Submit to get anywhere.
type Client struct {
	given  []*target
	opts   Options
	tracer trace.Tracer
	clock  clock

	told chan struct{} // has room for one; filled when a spool tells of others

	mu      sync.Mutex
	calls   map[string]*call // small messages that spools owe answers for, by id
	waiting []*call          // those of them that no stream has
	owed    []abort          // what is to be taken back from spools that were lost
	streams []*stream        // that take messages, one to a spool
	turn    int              // where the search for the least load begins
	news    chan struct{}    // closed and made anew when a stream comes or down is set
	down    bool             // no spool has been reached for a while: don't wait for one
	outage  *time.Timer      // sets down
	met     map[string]bool  // addresses of other spools to which a stream is kept
}

// scope names the instrumentation.
const scope = "github.com/rohrpost/rohrpost/gateway/gatewayrpc"

// New makes a client of the spools of one database: those behind the given connections, and those that they tell of.
func New(conns []grpc.ClientConnInterface, opts Options) (*Client, error) {
	if len(conns) == 0 {
		return nil, errors.New("gatewayrpc: no connection to a spool")
	}
	opts.setDefaults()
	c := &Client{
		opts:   opts,
		tracer: opts.TracerProvider.Tracer(scope),
		told:   make(chan struct{}, 1),
		calls:  make(map[string]*call),
		news:   make(chan struct{}),
		met:    make(map[string]bool),
	}
	c.outage = time.AfterFunc(c.opts.Unreachable, c.giveUp)
	c.outage.Stop() // until Run
	for _, conn := range conns {
		c.given = append(c.given, &target{SpoolServiceClient: spoolv1.NewSpoolServiceClient(conn), uses: 1})
	}
	return c, nil
}

var _ gateway.Spool = (*Client)(nil)

// errUnreachable is what clients are told while there is no spool.
var errUnreachable = smtpreply.New(451, "4.3.0", "Temporary system problem, try again later").
	Because(errors.New("no spool can be reached"))

// Now returns the spool's time: what its last hello said and what has passed since. Before the first hello it is this
// machine's.
func (c *Client) Now() time.Time { return c.clock.now() }

// Submit implements gateway.Spool.
func (c *Client) Submit(ctx context.Context, sub *gateway.Submission) (gateway.Receipt, error) {
	ctx, span := c.tracer.Start(ctx, "spool.submit", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("rohrpost.message.id", sub.ID.String()),
		attribute.Bool("rohrpost.streamed", sub.Stream != nil)))
	defer span.End()
	deadline := time.Now().Add(sub.Deadline)
	submit := c.submitSmall
	if sub.Stream != nil {
		submit = c.submitLarge
	}
	a := submit(ctx, sub, begin(ctx, sub), deadline)
	if a.spool != "" {
		span.SetAttributes(attribute.String("rohrpost.spool", a.spool))
	}
	if a.err != nil {
		span.RecordError(a.err)
		span.SetStatus(codes.Error, "not accepted")
	}
	return a.receipt, a.err
}

// begin describes a message, but for its deadline. The trace is that of the span in ctx, so that the spool's spans are
// its children.
func begin(ctx context.Context, sub *gateway.Submission) *spoolv1.SubmitBegin {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return &spoolv1.SubmitBegin{
		Id:       sub.ID.String(),
		Envelope: sub.Envelope,
		Edits:    sub.Edits,
		Trace: &mailv1.TraceContext{
			Traceparent: carrier["traceparent"],
			Tracestate:  carrier["tracestate"],
		},
		SizeHint: sub.SizeHint,
	}
}

// withDeadline returns a copy of b that is sent now. A frame that was sent is not changed: gRPC may still look at it.
func withDeadline(b *spoolv1.SubmitBegin, deadline time.Time) *spoolv1.SubmitBegin {
	return &spoolv1.SubmitBegin{
		Id:       b.GetId(),
		Envelope: b.GetEnvelope(),
		Edits:    b.GetEdits(),
		Trace:    b.GetTrace(),
		SizeHint: b.GetSizeHint(),
		Deadline: durationpb.New(max(time.Until(deadline), time.Millisecond)), // 0 would mean the spool's default
	}
}

// answer is what a spool said of a message.
type answer struct {
	spool   string // its name; empty where none has answered
	receipt gateway.Receipt
	err     error
}

// full tells whether a message was refused for now for what ails the spool or its store, not for what it is: by a code of
// "mail system status" (RFC 3463, section 3.4). Another spool may take it.
func (a answer) full() bool { return a.hasStatus("4.3.") }

// untouched tells whether, besides, the spool can't have kept anything of it: there was no room.
func (a answer) untouched() bool { return a.hasStatus("4.3.1") }

func (a answer) hasStatus(prefix string) bool {
	var reply *smtpreply.Error
	return errors.As(a.err, &reply) && reply.Temporary() && strings.HasPrefix(reply.Reply().GetEnhancedCode(), prefix)
}

// answerTo reads a reply frame that is about one message; ok is false for any other.
func (s *stream) answerTo(f *spoolv1.SubmitReplyFrame) (id string, a answer, ok bool) {
	switch kind := f.GetKind().(type) {
	case *spoolv1.SubmitReplyFrame_Accepted:
		return kind.Accepted.GetId(), answer{spool: s.name, receipt: gateway.Receipt{
			SuspectedDuplicateOf: kind.Accepted.GetSuspectedDuplicateOf(),
		}}, true
	case *spoolv1.SubmitReplyFrame_Refused:
		return kind.Refused.GetId(), answer{spool: s.name, err: smtpreply.FromReply(kind.Refused.GetReply())}, true
	}
	return "", answer{}, false
}
