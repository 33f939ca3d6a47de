package spoolrpc

import (
	"sync"
	"sync/atomic"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// workSink takes what the spool tells a worker. It never waits: jobs are bounded by credits, and a worker that leaves
// more than maxOutbox frames unread is dropped.
type workSink struct {
	out     *outbox[*spoolv1.SpoolFrame]
	credits atomic.Int64  // granted and not used
	dropped chan error    // holds one reason
	idle    chan struct{} // holds one token once the spool drains and the worker holds no job

	mu       sync.Mutex
	held     map[string]struct{} // tokens of the jobs that the worker was given and that are still its own
	draining bool
}

var _ spool.WorkerSink = (*workSink)(nil)

func newWorkSink() *workSink {
	return &workSink{
		out: newOutbox[*spoolv1.SpoolFrame](), dropped: make(chan error, 1), idle: make(chan struct{}, 1),
		held: make(map[string]struct{}),
	}
}

func (k *workSink) drop(reason error) {
	select {
	case k.dropped <- reason:
	default:
	}
}

func (k *workSink) put(frame *spoolv1.SpoolFrame) {
	if k.out.put(frame) > maxOutbox {
		k.drop(errOutboxFull)
	}
}

// change changes what the worker holds and then looks whether the stream may end.
func (k *workSink) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	if k.draining && len(k.held) == 0 {
		select {
		case k.idle <- struct{}{}:
		default:
		}
	}
}

func (k *workSink) release(token []byte) { k.change(func() { delete(k.held, string(token)) }) }

// SendJob sends a job.
func (k *workSink) SendJob(job *spool.Job) {
	k.credits.Add(-1)
	k.change(func() { k.held[string(job.Token)] = struct{}{} })
	k.put(jobFrame(job))
}

// AnswerPermit answers a permit request. A job that may not go on is no longer the worker's.
func (k *workSink) AnswerPermit(token []byte, granted bool) {
	k.put(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_PermitAnswer{
		PermitAnswer: &spoolv1.PermitAnswer{Token: token, Granted: granted},
	}})
	if !granted {
		k.release(token)
	}
}

// AckResult answers a result. Where it is to be presented again, that can be to any spool.
func (k *workSink) AckResult(token []byte, ack spool.AckStatus) {
	k.put(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_ResultAck{
		ResultAck: &spoolv1.ResultAck{Token: token, Status: ackStatus(ack)},
	}})
	k.release(token)
}

// CancelJob takes a job away.
func (k *workSink) CancelJob(token []byte, reason string) {
	k.put(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Cancel{Cancel: &spoolv1.Cancel{Token: token, Reason: reason}}})
	k.release(token)
}

// SendDrain tells that the spool stops. The stream ends once the worker has answered for what it holds.
func (k *workSink) SendDrain() {
	k.put(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Drain{Drain: &spoolv1.Drain{}}})
	k.change(func() { k.draining = true })
}

// SendHello tells who the spool is.
func (k *workSink) SendHello(hello spool.Hello) {
	k.put(&spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Hello{Hello: helloMessage(hello)}})
}

// Flush sends what was told.
func (k *workSink) Flush() { k.out.signal() }
