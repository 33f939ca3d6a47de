package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// batchLimit is how large a list of frames grows, in octets.
const batchLimit = 256<<10 - 1024

var (
	errDouble = errors.New("already connected to this spool")
	errLost   = errors.New("worker: the stream to the spool broke")

	errJobTimeout = errors.New("worker: the job took longer than the job time-out")
)

// stream is one Work stream. Its receive loop never sends: frames are queued and sent by a loop of their own.
type stream struct {
	r       *runner
	conn    grpc.ClientConnInterface
	address string
	spool   string // the spool's name, once it has said hello; written by the receive loop before join
	done    chan struct{}
	double  *stream  // another one to the same spool, which is why this one ended
	peers   []string // what the spool announced last; guarded by the runner

	mu      sync.Mutex
	queue   []*spoolv1.WorkerFrame
	wake    chan struct{} // holds one token while there may be something to send
	share   int           // how many jobs and credits there may be at once
	granted int           // credits that the spool has not used
	wanting bool          // jobs have ended since credits were granted
	jobs    map[string]*activeJob
	lease   time.Duration // the shortest lease seen
	shorter chan struct{} // holds one token after lease became shorter
}

func newStream(r *runner, conn grpc.ClientConnInterface, address string) *stream {
	return &stream{
		r: r, conn: conn, address: address, done: make(chan struct{}), wake: make(chan struct{}, 1),
		jobs: map[string]*activeJob{}, lease: time.Minute, shorter: make(chan struct{}, 1),
	}
}

// run opens the stream and serves it until it breaks.
func (s *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Without the limit at this end a result that is too large would only show as a stream that the spool ended.
	rpc, err := spoolv1.NewSpoolServiceClient(s.conn).Work(ctx, grpc.MaxCallSendMsgSize(rpcopt.MaxMessageSize))
	if err != nil {
		close(s.done)
		return err
	}
	s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Register{Register: &spoolv1.Register{
		ProtocolVersion: protocolVersion, Stage: s.r.stage, Worker: s.r.name, Instance: s.r.instance,
	}}})
	var loops sync.WaitGroup
	loops.Go(func() { s.sendLoop(ctx, rpc); cancel() })
	loops.Go(func() { s.progressLoop(ctx) })
	err = s.receiveLoop(ctx, rpc)
	cancel()
	close(s.done)
	if s.spool != "" {
		s.r.leave(s)
	}
	s.dropJobs()
	loops.Wait()
	return err
}

// ended tells whether the stream is broken.
func (s *stream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// send queues a frame. It never blocks: what can be queued is bounded by the jobs that are held.
func (s *stream) send(f *spoolv1.WorkerFrame) {
	s.mu.Lock()
	s.queue = append(s.queue, f)
	s.mu.Unlock()
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take gives what is queued, with the credits that are missing to the share.
func (s *stream) take() []*spoolv1.WorkerFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := s.queue
	s.queue = nil
	if missing := s.share - s.granted - len(s.jobs); s.wanting && missing > 0 && !s.r.draining.Load() {
		s.granted += missing
		frames = append(frames, &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Credits{Credits: &spoolv1.Credits{Count: int32(missing)}}})
	}
	s.wanting = false
	return frames
}

// sendResult presents a result.
func (s *stream) sendResult(item *heldResult) {
	s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Result{Result: s.r.held.sent(item, s)}})
}

// sendLoop sends what is queued, as many frames at once as are ready.
func (s *stream) sendLoop(ctx context.Context, rpc grpc.BidiStreamingClient[spoolv1.WorkRequest, spoolv1.WorkResponse]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		runtime.Gosched() // a busy worker does other jobs first, so that their results go together
		frames := s.take()
		for len(frames) > 0 {
			n := batch(frames)
			if err := rpc.Send(&spoolv1.WorkRequest{Frames: frames[:n]}); err != nil {
				if !errors.Is(err, io.EOF) { // it is the frames, not the stream
					s.r.held.giveUp(frames[:n])
				}
				return
			}
			frames = frames[n:]
		}
	}
}

// batch tells how many of the frames fit into one message, at least one.
func batch(frames []*spoolv1.WorkerFrame) int {
	size := 0
	for i, f := range frames {
		if size += wire.Size(f) + 8; size > batchLimit && i > 0 {
			return i
		}
	}
	return len(frames)
}

// receiveLoop handles what the spool sends.
func (s *stream) receiveLoop(ctx context.Context, rpc grpc.BidiStreamingClient[spoolv1.WorkRequest, spoolv1.WorkResponse]) error {
	for {
		resp, err := rpc.Recv()
		if err != nil {
			return fmt.Errorf("receiving work: %w", err)
		}
		for _, f := range resp.GetFrames() {
			if err := s.frame(ctx, f); err != nil {
				return err
			}
		}
	}
}

func (s *stream) frame(ctx context.Context, f *spoolv1.SpoolFrame) error {
	switch k := f.GetKind().(type) {
	case *spoolv1.SpoolFrame_Hello:
		return s.hello(ctx, k.Hello)
	case *spoolv1.SpoolFrame_Job:
		s.startJob(ctx, k.Job)
	case *spoolv1.SpoolFrame_PermitAnswer:
		s.answerPermit(k.PermitAnswer)
	case *spoolv1.SpoolFrame_ResultAck:
		s.acknowledge(ctx, k.ResultAck)
	case *spoolv1.SpoolFrame_Cancel:
		s.cancelJob(k.Cancel)
	case *spoolv1.SpoolFrame_Drain:
		// The spool gives no more jobs. It ends the stream when what is out has come back.
	}
	return nil
}

func (s *stream) hello(ctx context.Context, h *spoolv1.SpoolHello) error {
	if s.spool == "" {
		if v := h.GetProtocolVersion(); v != protocolVersion {
			return fmt.Errorf("spool %s speaks protocol version %d, this worker speaks %d", h.GetSpool(), v, protocolVersion)
		}
		s.spool = h.GetSpool()
		if s.double = s.r.join(s); s.double != nil {
			s.spool = ""
			return errDouble
		}
	}
	s.r.mu.Lock()
	s.peers = h.GetPeers()
	s.r.mu.Unlock()
	s.r.announce(ctx, h.GetPeers())
	return nil
}

// setShare changes how many jobs the stream may have at once. The credits come with topUp.
func (s *stream) setShare(n int) {
	s.mu.Lock()
	s.share = n
	s.mu.Unlock()
}

// topUp grants the credits that are missing to the share with what is sent next.
func (s *stream) topUp() {
	s.mu.Lock()
	s.wanting = true
	s.mu.Unlock()
	s.signal()
}

// progressLoop renews the leases of the jobs that are held, those that wait for a free handler included.
func (s *stream) progressLoop(ctx context.Context) {
	for {
		s.mu.Lock()
		every := s.lease / 3
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-s.shorter:
			continue
		case <-time.After(every):
		}
		s.mu.Lock()
		tokens := make([][]byte, 0, len(s.jobs))
		now := time.Now()
		for token, active := range s.jobs {
			if !active.deadline.IsZero() && now.After(active.deadline) {
				continue // it hangs: let the spool take the job away
			}
			tokens = append(tokens, []byte(token))
		}
		s.mu.Unlock()
		for _, token := range tokens {
			s.send(&spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Progress{Progress: &spoolv1.Progress{Token: token}}})
		}
	}
}
