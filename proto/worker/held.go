package worker

import (
	"fmt"
	"sync"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// maxResult is how large a result may be, encoded: with its frame it must fit into a message.
const maxResult = rpcopt.MaxMessageSize - 1024

// heldResult is a job that is being done, or its result until a spool has acknowledged it.
type heldResult struct {
	spool  string          // the name of the spool that gave it
	result *spoolv1.Result // nil while the job is being done
	sentOn *stream         // the stream it was last presented on
}

// held knows every job and every result that the worker is responsible for.
type held struct {
	mu    sync.Mutex
	items map[string]*heldResult
	idle  chan struct{} // closed while there are no items
}

func newHeld() *held {
	h := &held{items: map[string]*heldResult{}, idle: make(chan struct{})}
	close(h.idle)
	return h
}

// start notes that a job is being done.
func (h *held) start(token []byte, spool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.items) == 0 {
		h.idle = make(chan struct{})
	}
	h.items[string(token)] = &heldResult{spool: spool}
}

// finish keeps the result of a job.
func (h *held) finish(token []byte, result *spoolv1.Result) *heldResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	item := h.items[string(token)]
	if item != nil {
		item.result = result
	}
	return item
}

// forget drops a job or a result.
func (h *held) forget(token []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.items[string(token)]; !ok {
		return
	}
	delete(h.items, string(token))
	if len(h.items) == 0 {
		close(h.idle)
	}
}

// result returns a result that is still held, nil if there is none.
func (h *held) result(token []byte) *heldResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	if item := h.items[string(token)]; item != nil && item.result != nil {
		return item
	}
	return nil
}

// homeless returns the results that were presented on no stream that still lives.
func (h *held) homeless() []*heldResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*heldResult
	for _, item := range h.items {
		if item.result != nil && (item.sentOn == nil || item.sentOn.ended()) {
			out = append(out, item)
		}
	}
	return out
}

// sent notes on which stream a result is presented, and returns the result.
func (h *held) sent(item *heldResult, s *stream) *spoolv1.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	item.sentOn = s
	return item.result
}

// lastAsked tells the name of the spool to which a result was presented last; before that, of the one that gave the job.
func (h *held) lastAsked(item *heldResult) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if item.sentOn == nil {
		return item.spool
	}
	return item.sentOn.spool
}

// giveUp puts a failure in the place of every result among the frames that no stream can carry. Presented again and
// again, it would break one stream after another, with the work of all other jobs on them.
func (h *held) giveUp(frames []*spoolv1.WorkerFrame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range frames {
		result := f.GetResult()
		if result == nil {
			continue
		}
		_, err := wire.Marshal(result) // fails for a string that is not UTF-8
		if size := wire.Size(result); err == nil && size > maxResult {
			err = fmt.Errorf("it has %d octets, at most %d can be sent", size, maxResult)
		}
		if item := h.items[string(result.GetToken())]; err != nil && item != nil {
			item.result = failure(fmt.Sprintf("the result can't be sent: %v", err))
			item.result.Token = result.GetToken()
		}
	}
}

// empty returns a channel that is closed once nothing is held.
func (h *held) empty() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle
}
