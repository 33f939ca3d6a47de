package deliver

import (
	"slices"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/deliver/internal/smtpclient"
)

// session is an open connection to a next hop that has answered EHLO.
type session struct {
	hop    string // what it is good for: the route's address and the name we said there
	conn   *smtpclient.Conn
	ext    extensions
	remote string // the next hop as it was reached
	sent   int    // messages so far
	timer  *time.Timer
}

// sessions keeps connections open for the next message to the same next hop: most of a small message's time there goes
// into connecting and greeting. Whoever takes a connection out of the list, under the lock, has it for himself. It is safe
// for concurrent use.
type sessions struct {
	idle time.Duration // how long one is kept
	most int           // messages that one may carry
	quit time.Duration // bounds the QUIT of one that is closed

	mu     sync.Mutex
	kept   map[string][]*session
	closed bool
	ending sync.WaitGroup // those whose time is up
}

// take returns a connection to a next hop, nil where none is kept. The peer may have closed it meanwhile.
func (p *sessions) take(hop string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.kept[hop]
	if len(list) == 0 {
		return nil
	}
	s := list[len(list)-1]
	p.set(hop, list[:len(list)-1])
	s.timer.Stop()
	return s
}

// set is called with the lock held.
func (p *sessions) set(hop string, list []*session) {
	if len(list) == 0 {
		delete(p.kept, hop)
		return
	}
	p.kept[hop] = list
}

// put keeps a connection on which a message has been answered, or closes it where it has done enough.
func (p *sessions) put(s *session) {
	p.mu.Lock()
	// A peer that has said more than it was asked would have its replies taken for those of the next message.
	if p.closed || p.idle == 0 || s.sent >= p.most || s.conn.Unread() {
		p.mu.Unlock()
		p.end(s)
		return
	}
	defer p.mu.Unlock()
	s.timer = time.AfterFunc(p.idle, func() {
		if p.remove(s) {
			defer p.ending.Done()
			p.end(s)
		}
	})
	p.kept[s.hop] = append(p.kept[s.hop], s)
}

// remove takes a connection out whose time is up. It is false where somebody was faster.
func (p *sessions) remove(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.kept[s.hop], s)
	if at < 0 {
		return false
	}
	p.set(s.hop, slices.Delete(p.kept[s.hop], at, at+1))
	p.ending.Add(1)
	return true
}

// end closes a connection. QUIT is politeness only: the outcome is known, and a peer that does not answer changes nothing.
func (p *sessions) end(s *session) {
	_, _ = s.conn.Cmd(p.quit, "QUIT")
	_ = s.conn.Close()
}

// close ends all connections that are kept, and from now on each as soon as it is put back.
func (p *sessions) close() {
	p.mu.Lock()
	p.closed = true
	var all []*session
	for _, list := range p.kept {
		for _, s := range list {
			s.timer.Stop()
			all = append(all, s)
		}
	}
	clear(p.kept)
	p.mu.Unlock()
	for _, s := range all {
		p.ending.Go(func() { p.end(s) })
	}
	p.ending.Wait()
}
