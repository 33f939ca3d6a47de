// Package worker is the loop by which anyone writes a worker: it registers with the spools, grants credits, hands jobs to
// a function and takes the results back until they count.
//
//	err := worker.Run(ctx, conn, spoolv1.Stage_STAGE_FILTER, 8, func(ctx context.Context, job *worker.Job) (*spoolv1.Result, error) {
//		return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: judge(job)}}}, nil
//	})
//
// Several spools on one database announce each other. With [WithDialer] the worker connects to each of them and divides
// its capacity between them.
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// Handler does one job. It is called concurrently, up to the capacity. The context carries the span of the job, whose
// parent travelled in the job, and ends when the job is cancelled or taken away. The token of the result is filled in
// by the loop. An error means that the job could not be done here and now; it becomes a JobFailure.
type Handler func(ctx context.Context, job *Job) (*spoolv1.Result, error)

// ErrNoPermit means that a deliver job must not pass its point of no return: it is no longer the worker's.
var ErrNoPermit = errors.New("worker: no permit, the job is no longer ours")

// Job is a job with the way back to the spool that gave it.
type Job struct {
	*spoolv1.Job
	link link
}

// link is what a job needs of the stream it came on.
type link interface {
	permit(ctx context.Context, token []byte) error
	read(ctx context.Context, job *spoolv1.Job, offset, length int64) (io.ReadCloser, error)
}

// Open returns the content from an octet offset on, wherever it is. The caller closes it.
func (j *Job) Open(ctx context.Context, offset int64) (io.ReadCloser, error) {
	return j.OpenPart(ctx, offset, j.GetContentSize()-offset)
}

// OpenPart returns length octets of the content from an octet offset on, for a reader that may not want the rest: what was
// opened may be on its way before it is read. The caller closes it.
func (j *Job) OpenPart(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	return j.link.read(ctx, j.Job, offset, length)
}

// Permit asks for leave to pass the point of no return and waits for the answer. Where it returns an error, the
// connection to the next hop must be dropped such that nothing was sent; [ErrNoPermit] where the spool said no.
func (j *Job) Permit(ctx context.Context) error { return j.link.permit(ctx, j.GetToken()) }

// Dialer connects to a spool that another one announced. The loop closes the connection when the spool is gone.
type Dialer func(address string) (*grpc.ClientConn, error)

// Option changes how [Run] works.
type Option func(*runner)

// WithName sets the worker's name, at most 255 octets, unique among the workers of a stage. The default is made of the
// host name and the process id.
func WithName(name string) Option { return func(r *runner) { r.name = name } }

// WithLogger sets the logger. The default is [slog.Default].
func WithLogger(log *slog.Logger) Option { return func(r *runner) { r.log = log } }

// WithTracerProvider sets where the spans of jobs go. The default is the global provider.
func WithTracerProvider(tp trace.TracerProvider) Option { return func(r *runner) { r.provider = tp } }

// WithDialer lets the worker connect to the spools that the first one announces.
func WithDialer(dial Dialer) Option { return func(r *runner) { r.dial = dial } }

// WithDrainTimeout bounds how long the jobs that are held may take once ctx has ended; the default is 30 s.
func WithDrainTimeout(d time.Duration) Option { return func(r *runner) { r.drainTimeout = d } }

// WithJobTimeout bounds how long the handler may take for one job; the default is 1 h. Then its context ends, and the job
// is no longer reported as being worked at, so that the spool takes it away from a handler that hangs.
func WithJobTimeout(d time.Duration) Option { return func(r *runner) { r.jobTimeout = d } }

// Run works for the spool behind conn, and for those that it announces, until ctx ends. Then it takes no more jobs,
// finishes those it holds within the drain time-out and returns nil. Broken streams are opened again with back-off; a
// result that was not acknowledged is presented again on the next stream.
//
// capacity is how many jobs the handler does at once over all streams, from 1. The connection should be made with
// [github.com/rohrpost/rohrpost/proto/rpcopt].DialOptions, and with a resolver that keeps all addresses of the spools.
func Run(ctx context.Context, conn grpc.ClientConnInterface, stage spoolv1.Stage, capacity int, handle Handler, opts ...Option) error {
	if capacity < 1 {
		return errors.New("worker: capacity must be at least 1")
	}
	r := newRunner(stage, capacity, handle)
	for _, opt := range opts {
		opt(r)
	}
	r.tracer = r.provider.Tracer("github.com/rohrpost/rohrpost/proto/worker")
	return r.run(ctx, conn)
}

func newRunner(stage spoolv1.Stage, capacity int, handle Handler) *runner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &runner{
		stage: stage, capacity: capacity, handle: handle,
		name: defaultName(host), instance: []byte(rand.Text()), log: slog.Default(), provider: otel.GetTracerProvider(),
		drainTimeout: 30 * time.Second, jobTimeout: time.Hour, held: newHeld(), streams: map[string]*stream{},
		peers: map[string]context.CancelFunc{}, announced: make(chan []string),
		slots: make(chan struct{}, capacity), stock: newStock(stage, capacity),
	}
}
