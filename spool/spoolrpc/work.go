package spoolrpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

const (
	// maxCredits is how many jobs a worker may have asked for on one stream and not been sent yet.
	maxCredits = 1 << 14
	// maxInstance is how long the instance of a worker may be, in octets.
	maxInstance = 64
	// maxOutbox is how many frames may wait for a worker: the jobs that it has credits for, and answers.
	maxOutbox = 4 * maxCredits
)

// workStream is one Work stream.
type workStream struct {
	worker worker
	log    *slog.Logger
	sink   *workSink
}

// Work gives jobs to a worker and takes its results, until the worker ends the stream, until the spool drains and all
// jobs of the stream are answered, or until the worker is dropped because it does not read.
func (s *Server) Work(stream spoolv1.SpoolService_WorkServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	register, err := readRegister(first)
	if err != nil {
		return err
	}
	hello, ok := s.engine.Hello()
	if !ok {
		return errNoIncarnation
	}
	st := &workStream{
		log:  s.log.With(slog.String("stage", stageOf(register).String()), slog.String("worker", register.GetWorker())),
		sink: newWorkSink(),
	}
	st.sink.SendHello(hello) // before Join: the hello comes first
	st.sink.Flush()
	if st.worker, err = s.engine.Join(stageOf(register), register.GetWorker(), string(register.GetInstance()), st.sink); err != nil {
		return joinError(err)
	}
	defer st.worker.Leave()
	ctx := stream.Context()
	sent := make(chan error, 1)
	go func() {
		sent <- st.sink.out.run(ctx, func(frames []*spoolv1.SpoolFrame) error {
			unread := time.AfterFunc(s.sendTimeout, func() { st.sink.drop(errSlowWorker) })
			defer unread.Stop()
			return stream.Send(&spoolv1.WorkResponse{Frames: frames})
		})
	}()
	if err := st.frames(ctx, first.GetFrames()[1:]); err != nil {
		return err
	}
	return st.run(ctx, receive(ctx, stream.Recv), sent)
}

var (
	errSlowWorker = status.Error(codes.ResourceExhausted, "the worker does not read what it is sent")
	errOutboxFull = status.Error(codes.ResourceExhausted, "too many answers that the worker has not read")
)

// joinError tells a worker to try another spool.
func joinError(err error) error {
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	return status.Error(codes.Unavailable, "the spool takes no workers now")
}

func readRegister(req *spoolv1.WorkRequest) (*spoolv1.Register, error) {
	var register *spoolv1.Register
	if frames := req.GetFrames(); len(frames) > 0 {
		register = frames[0].GetRegister()
	}
	switch {
	case register == nil:
		return nil, status.Error(codes.InvalidArgument, "the first frame of a Work stream must register the worker")
	case register.GetProtocolVersion() < protocolVersion:
		return nil, status.Errorf(codes.InvalidArgument, "protocol version %d is not known, want %d or higher",
			register.GetProtocolVersion(), protocolVersion)
	case stageOf(register) == 0:
		return nil, status.Errorf(codes.InvalidArgument, "stage %d is not known", register.GetStage())
	case register.GetWorker() == "" || len(register.GetWorker()) > maxName:
		return nil, status.Errorf(codes.InvalidArgument, "the worker's name must have 1 to %d octets", maxName)
	case len(register.GetInstance()) > maxInstance:
		return nil, status.Errorf(codes.InvalidArgument, "the worker's instance may have %d octets", maxInstance)
	}
	return register, nil
}

// run handles the stream until it ends.
func (st *workStream) run(ctx context.Context, in <-chan received[*spoolv1.WorkRequest], sent <-chan error) error {
	for {
		var err error
		select {
		case r := <-in:
			if errors.Is(r.err, io.EOF) {
				return st.finish(ctx, sent)
			}
			if err = r.err; err == nil {
				err = st.frames(ctx, r.req.GetFrames())
			}
		case <-st.sink.idle:
			return st.finish(ctx, sent)
		case err = <-sent:
		case err = <-st.sink.dropped:
			st.log.WarnContext(ctx, "worker dropped", slog.Any("error", err))
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// finish sends what waits after the worker has said its last, or has nothing left to say to a spool that stops.
func (st *workStream) finish(ctx context.Context, sent <-chan error) error {
	st.worker.Leave()
	st.sink.out.finish()
	select {
	case err := <-sent:
		return err
	case err := <-st.sink.dropped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (st *workStream) frames(ctx context.Context, frames []*spoolv1.WorkerFrame) error {
	for _, frame := range frames {
		switch kind := frame.GetKind().(type) {
		case *spoolv1.WorkerFrame_Register:
			return status.Error(codes.InvalidArgument, "a worker registers only once on a stream")
		case *spoolv1.WorkerFrame_Credits:
			if err := st.credits(kind.Credits.GetCount()); err != nil {
				return err
			}
		case *spoolv1.WorkerFrame_Progress:
			st.worker.Progress(kind.Progress.GetToken())
		case *spoolv1.WorkerFrame_PermitRequest:
			st.worker.RequestPermit(kind.PermitRequest.GetToken())
		case *spoolv1.WorkerFrame_Result:
			st.worker.Result(kind.Result.GetToken(), st.result(ctx, kind.Result))
		case *spoolv1.WorkerFrame_Drain:
			st.worker.Drain()
		default: // a kind of a later version: ignored
		}
	}
	return nil
}

func (st *workStream) credits(count int32) error {
	if count < 1 {
		return status.Errorf(codes.InvalidArgument, "%d credits, want at least 1", count)
	}
	if st.sink.credits.Add(int64(count)) > maxCredits {
		return status.Errorf(codes.InvalidArgument, "more than %d credits", maxCredits)
	}
	st.worker.Grant(int(count))
	return nil
}
