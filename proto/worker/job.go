package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// activeJob is a job that came on a stream and has no result yet.
type activeJob struct {
	cancel context.CancelCauseFunc
	// permit receives the spool's answer. Its holder asked for leave: from then on the job's result matters even
	// if the stream breaks, since the permit may have been recorded.
	permit chan bool
	asked  bool
	// deadline is when the handler should have ended; zero while it waits for a slot.
	deadline time.Time
}

// startJob runs the handler for a job as soon as a slot is free.
func (s *stream) startJob(ctx context.Context, job *spoolv1.Job) {
	// The job outlives its stream if it has asked for a permit.
	jobCtx, cancel := context.WithCancelCause(extract(context.WithoutCancel(ctx), job.GetTrace()))
	active := &activeJob{cancel: cancel, permit: make(chan bool, 1)}
	s.mu.Lock()
	s.granted--
	s.jobs[string(job.GetToken())] = active
	if lease := job.GetLease().AsDuration(); lease > 0 && lease < s.lease {
		s.lease = lease
		select {
		case s.shorter <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
	s.r.held.start(job.GetToken(), s.spool)
	s.r.wg.Go(func() {
		defer cancel(nil)
		select {
		case s.r.slots <- struct{}{}:
			defer func() { <-s.r.slots }()
			s.finishJob(job, s.bounded(jobCtx, job, active), jobCtx.Err() != nil)
		case <-jobCtx.Done():
			s.finishJob(job, nil, true)
		}
	})
}

// bounded works for the job time-out at most, if the handler heeds its context; else the lease ends.
func (s *stream) bounded(ctx context.Context, job *spoolv1.Job, active *activeJob) *spoolv1.Result {
	begun := time.Now()
	defer func() { s.r.learn(time.Since(begun)) }()
	deadline := begun.Add(s.r.jobTimeout)
	s.mu.Lock()
	active.deadline = deadline
	s.mu.Unlock()
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errJobTimeout)
	defer cancel()
	return s.work(ctx, job)
}

// work calls the handler under the job's span. A panic in it fails the job alone.
func (s *stream) work(ctx context.Context, job *spoolv1.Job) (result *spoolv1.Result) {
	ctx, span := s.r.tracer.Start(ctx, s.r.stageName()+".job", trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(attribute.String("rohrpost.message.id", job.GetMessageId()), attribute.String("rohrpost.worker", s.r.name))
	}
	fail := func(err error) {
		span.SetStatus(otelcodes.Error, err.Error())
		s.r.log.ErrorContext(ctx, "job failed", "stage", s.r.stageName(), "message_id", job.GetMessageId(), "error", err)
		result = failure(err.Error())
	}
	defer func() {
		if p := recover(); p != nil {
			s.r.log.ErrorContext(ctx, "handler panicked", "stack", string(debug.Stack()))
			fail(fmt.Errorf("handler panicked: %v", p))
		}
	}()
	result, err := s.r.handle(ctx, &Job{Job: job, link: s})
	switch {
	case err != nil:
		fail(err)
	case result.GetKind() == nil:
		fail(errors.New("handler returned no result"))
	}
	return result
}

// maxReason is how many octets of a reason are told.
const maxReason = 1000

// failure is the result of a job that could not be done. The reason may quote what strangers wrote.
func failure(reason string) *spoolv1.Result {
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "?")
	return &spoolv1.Result{Kind: &spoolv1.Result_Failure{Failure: &spoolv1.JobFailure{Reason: strings.ReplaceAll(reason, "\x00", "?")}}}
}

// finishJob presents the result, unless the job was taken away.
func (s *stream) finishJob(job *spoolv1.Job, result *spoolv1.Result, cancelled bool) {
	s.mu.Lock()
	active, here := s.jobs[string(job.GetToken())]
	delete(s.jobs, string(job.GetToken()))
	keep := here && active.asked
	s.mu.Unlock()
	if result == nil || cancelled && !keep {
		s.r.held.forget(job.GetToken())
	} else {
		result.Token = job.GetToken()
		if item := s.r.held.finish(job.GetToken(), result); item != nil {
			s.r.present(item)
		}
	}
	s.topUp()
}

// acknowledge forgets a result that was judged.
func (s *stream) acknowledge(ctx context.Context, ack *spoolv1.ResultAck) {
	if ack.GetStatus() == spoolv1.ResultAckStatus_RESULT_ACK_STATUS_AGAIN {
		s.r.presentLater(ctx, ack.GetToken())
		return
	}
	s.r.held.forget(ack.GetToken())
}

// cancelJob stops a job that is no longer wanted.
func (s *stream) cancelJob(c *spoolv1.Cancel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if active := s.jobs[string(c.GetToken())]; active != nil {
		active.cancel(fmt.Errorf("worker: the spool took the job away: %s", c.GetReason()))
	}
}

// dropJobs ends what the broken stream was for: jobs that have not asked for a permit are given out again by the spool.
func (s *stream) dropJobs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, active := range s.jobs {
		if !active.asked {
			active.cancel(errLost)
		}
	}
}

// permit implements link.
func (s *stream) permit(ctx context.Context, token []byte) error {
	s.mu.Lock()
	active := s.jobs[string(token)]
	lost := active == nil || s.ended()
	if !lost {
		active.asked = true
	}
	s.mu.Unlock()
	if lost {
		return errLost
	}
	s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_PermitRequest{PermitRequest: &spoolv1.PermitRequest{Token: token}}})
	var over error
	select {
	case granted := <-active.permit:
		return leave(granted)
	case <-s.done:
		over = errLost
	case <-ctx.Done():
		over = context.Cause(ctx)
	}
	select {
	case granted := <-active.permit: // both have come, and the answer counts
		return leave(granted)
	default:
		return over
	}
}

// leave is what a spool's answer means.
func leave(granted bool) error {
	if !granted {
		return ErrNoPermit
	}
	return nil
}

func (s *stream) answerPermit(answer *spoolv1.PermitAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if active := s.jobs[string(answer.GetToken())]; active != nil {
		select {
		case active.permit <- answer.GetGranted():
		default: // answered before: one permit is enough
		}
	}
}

// read implements link.
func (s *stream) read(ctx context.Context, job *spoolv1.Job, offset, length int64) (io.ReadCloser, error) {
	size := job.GetContentSize()
	if offset < 0 || offset > size || length < 0 || length > size-offset {
		return nil, fmt.Errorf("worker: %d octets from %d lie outside the content of %d octets", length, offset, size)
	}
	if int64(len(job.GetContent())) == size {
		return io.NopCloser(bytes.NewReader(job.GetContent()[offset:][:length])), nil
	}
	if length == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	rpc, err := spoolv1.NewSpoolServiceClient(s.conn).ReadContent(ctx, &spoolv1.ReadContentRequest{
		Token: job.GetToken(), Offset: offset, Length: length,
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading content: %w", err)
	}
	return &contentReader{recv: rpc.Recv, cancel: cancel, left: length}, nil
}

// contentReader reads a ReadContent stream.
type contentReader struct {
	recv   func() (*spoolv1.ReadContentResponse, error)
	cancel context.CancelFunc
	data   []byte
	left   int64
}

// Read implements io.Reader. A stream that ends early is an error: content is never cut silently.
func (r *contentReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		resp, err := r.recv()
		if errors.Is(err, io.EOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, fmt.Errorf("reading content: %w", err)
		}
		r.data = resp.GetData()
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	if r.left -= int64(n); r.left < 0 {
		return n, errors.New("worker: the spool sent more content than the job says")
	}
	return n, nil
}

// Close implements io.Closer.
func (r *contentReader) Close() error {
	r.cancel()
	return nil
}

// extract puts the job's trace context into ctx.
func extract(ctx context.Context, tc *mailv1.TraceContext) context.Context {
	if tc.GetTraceparent() == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": tc.GetTraceparent(), "tracestate": tc.GetTracestate(),
	})
}
