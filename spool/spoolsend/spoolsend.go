// Package spoolsend takes messages one by one, by a unary call: it serves rohrpost.send.v1.SendService to applications
// that speak no SMTP and keep no stream.
//
// A call may be repeated: its idempotency key stands for one message id, durably, before the message is handed to the
// spool, and the spool takes an id once. Nothing that was handed over is ever taken back, however the call ends, so that
// a message that is durable is certain to be sent. docs/adr/009-clients.md says why.
package spoolsend

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// maxCalls is how many calls are served at a time. Past it they are told to come again, so that memory is bounded.
const maxCalls = 256

// Options is what a server needs beside its spool. The zero value is fit for use.
type Options struct {
	// Hostname is what Received fields call this host: its fully qualified name; localhost where empty.
	Hostname string
	// Caller tells who makes a call, for the envelope's authenticated_user; nobody where nil.
	Caller func(ctx context.Context) string
	// Logger is slog.Default where nil.
	Logger *slog.Logger
	// TracerProvider is the global one where nil.
	TracerProvider trace.TracerProvider
	// Timeout bounds a call, whatever its own deadline; 60 s where 0.
	Timeout time.Duration
}

// KeyStore remembers which message an idempotency key stands for. Its methods may be called concurrently.
type KeyStore interface {
	// ReserveKey makes durable that a key stands for a message, given by its id and its hash, and tells for which it
	// stands: the given one, or the one that was given first.
	ReserveKey(ctx context.Context, key string, hash []byte, id spool.ID) (spool.ID, []byte, error)
	// HasMessage tells whether a message is durable, whoever owns it.
	HasMessage(ctx context.Context, id spool.ID) (bool, error)
}

// engine is what the server asks of a spool; see [spool.Spool] for what each method promises.
type engine interface {
	Hello() (spool.Hello, bool)
	// Submit hands over a message; where its content went through an upload, that.
	Submit(sub spool.Submission, content upload, done func(spool.Receipt, error))
	NewUpload(ctx context.Context, id spool.ID, size int64) (upload, error)
}

// upload is what the server needs of a [spool.Upload].
type upload interface {
	Write(ctx context.Context, p []byte) error
	Abort()
}

// Server serves SendService. Its methods may be called concurrently.
type Server struct {
	sendv1.UnimplementedSendServiceServer

	engine engine
	keys   KeyStore
	opts   Options
	tracer trace.Tracer
	calls  chan struct{} // one for each call under way
	poll   time.Duration // how often a call looks whether another spool has made its message durable
}

var _ sendv1.SendServiceServer = (*Server)(nil)

// New makes a server that hands messages to a spool.
func New(s *spool.Spool, keys KeyStore, opts Options) *Server {
	return newServer(realEngine{s}, keys, opts)
}

func newServer(e engine, keys KeyStore, opts Options) *Server {
	if opts.Hostname == "" {
		opts.Hostname = "localhost"
	}
	if opts.Caller == nil {
		opts.Caller = func(context.Context) string { return "" }
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	return &Server{
		engine: e, keys: keys, opts: opts, calls: make(chan struct{}, maxCalls), poll: 500 * time.Millisecond,
		tracer: opts.TracerProvider.Tracer("github.com/rohrpost/rohrpost/spool/spoolsend"),
	}
}

// realEngine is a spool as an engine.
type realEngine struct{ *spool.Spool }

// Submit hands over a message with the upload that NewUpload made for it, if any.
func (e realEngine) Submit(sub spool.Submission, content upload, done func(spool.Receipt, error)) {
	sub.Upload, _ = content.(*spool.Upload)
	e.Spool.Submit(sub, done)
}

// NewUpload begins the content of a message.
func (e realEngine) NewUpload(ctx context.Context, id spool.ID, size int64) (upload, error) {
	u, err := e.Spool.NewUpload(ctx, id, size)
	if err != nil {
		return nil, err
	}
	return u, nil
}
