package spool

import "sync"

// Worker is a worker's side of the spool: one stream. Its methods may be called concurrently, never wait and do nothing
// after Leave. What comes of them is told to the sink.
type Worker struct {
	spool *Spool
	peer  *peer
	told  bool // something since the last flush; the loop's

	mu   sync.Mutex // held while the sink is called
	sink WorkerSink // nil after Leave
}

// Grant lets the spool send n more jobs, n from 1.
func (w *Worker) Grant(n int) { w.spool.post(item{event: credited{peer: w.peer, n: n}}) }

// Progress renews the lease of a job.
func (w *Worker) Progress(token []byte) {
	w.spool.post(item{event: progressed{peer: w.peer, token: token}})
}

// RequestPermit asks for leave to pass the point of no return of a deliver job. The answer comes by AnswerPermit.
func (w *Worker) RequestPermit(token []byte) {
	w.spool.post(item{event: permitRequested{peer: w.peer, token: token}})
}

// Result presents what came of a job. The answer comes by AckResult.
func (w *Worker) Result(token []byte, result WorkResult) {
	w.spool.post(item{event: resulted{peer: w.peer, token: token, result: result}})
}

// Drain says that the worker wants no more jobs. It still answers for those it holds.
func (w *Worker) Drain() { w.spool.post(item{event: drained{peer: w.peer}}) }

// Leave says that the stream has ended. The jobs it held are given out again or, where permitted, wait for their result
// to be presented on a new stream. The sink is not called once Leave has returned.
func (w *Worker) Leave() {
	w.mu.Lock()
	left := w.sink == nil
	w.sink = nil
	w.mu.Unlock()
	if !left {
		w.spool.post(item{event: leftPeer{peer: w.peer}})
	}
}

// tell calls the sink, unless the worker has left.
func (w *Worker) tell(f func(WorkerSink)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink != nil {
		f(w.sink)
	}
}
