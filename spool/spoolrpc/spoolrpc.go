// Package spoolrpc puts the spool on the wire: it serves rohrpost.spool.v1.SpoolService to gateways and workers.
//
// Every stream has one goroutine that receives, one that handles and one that sends. What the spool tells a stream goes
// to an outbox and never waits for the network; what a peer may leave unanswered is bounded, and beyond that the stream
// is not read any further, so that gRPC's flow control holds the peer back.
package spoolrpc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// protocolVersion is the version of the protocol that is spoken here.
const protocolVersion = 1

// maxName is the longest name of a gateway or worker, in octets.
const maxName = 255

// maxResponse is the size below which a message of more than one frame stays, in octets, encoded.
const maxResponse = 256 << 10

// Options is what a server needs beside its spool. The zero value is fit for use.
type Options struct {
	// Logger is slog.Default where nil.
	Logger *slog.Logger
	// SendTimeout is how long a worker may leave what it was sent unread before it is dropped and its jobs are given to
	// others; 30 s where 0.
	SendTimeout time.Duration
}

// Server serves SpoolService. Its methods may be called concurrently.
type Server struct {
	spoolv1.UnimplementedSpoolServiceServer

	engine      engine
	log         *slog.Logger
	sendTimeout time.Duration
	drain       chan struct{}
	drainOnce   sync.Once
}

var _ spoolv1.SpoolServiceServer = (*Server)(nil)

// engine is what the server asks of a spool; see [spool.Spool] for what each method promises.
type engine interface {
	Hello() (spool.Hello, bool)
	// Submit hands over a message; where its content went through an upload, that.
	Submit(sub spool.Submission, content upload, done func(spool.Receipt, error))
	NewUpload(ctx context.Context, id spool.ID, size int64) (upload, error)
	Abort(id spool.ID)
	Join(stage spool.Stage, name, instance string, sink spool.WorkerSink) (worker, error)
	ReadContent(ctx context.Context, token []byte, offset, length int64, take func(piece []byte) error) error
}

// upload is what a stream needs of a [spool.Upload].
type upload interface {
	Write(ctx context.Context, p []byte) error
	Abort()
}

// worker is what a stream needs of a [spool.Worker].
type worker interface {
	Grant(n int)
	Progress(token []byte)
	RequestPermit(token []byte)
	Result(token []byte, result spool.WorkResult)
	Drain()
	Leave()
}

// New makes the server of a spool.
func New(s *spool.Spool, opts Options) *Server { return newServer(realEngine{s}, opts) }

func newServer(e engine, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.SendTimeout == 0 {
		opts.SendTimeout = 30 * time.Second
	}
	return &Server{engine: e, log: opts.Logger, sendTimeout: opts.SendTimeout, drain: make(chan struct{})}
}

// Drain tells every gateway to submit elsewhere, and from now on gives none a new stream. What was read is still answered.
// Call it before the spool stops and before GracefulStop, which waits for the streams to end. Workers hear of it from the
// spool.
func (s *Server) Drain() { s.drainOnce.Do(func() { close(s.drain) }) }

func (s *Server) drains() bool {
	select {
	case <-s.drain:
		return true
	default:
		return false
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

// Join takes on a worker.
func (e realEngine) Join(stage spool.Stage, name, instance string, sink spool.WorkerSink) (worker, error) {
	w, err := e.Spool.Join(stage, name, instance, sink)
	if err != nil {
		return nil, err
	}
	return w, nil
}
