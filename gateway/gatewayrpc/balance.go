package gatewayrpc

import (
	"slices"
	"time"
)

const (
	// frameCost is what a message costs a spool beside its octets, in octets.
	frameCost = 4 << 10
	// largeCost stands for a large message that is under way, whatever its size: a spool has no more of it in memory.
	largeCost = chunkSize
	// silence is for how long a spool may answer nothing of what it owes before others are asked first.
	silence = time.Second
	// blocked is how long a spool may take nothing of what is sent to it before others are asked first.
	blocked = 100 * time.Millisecond
	// holdFor is how long a spool whose stream broke has to come back for what it may have.
	holdFor = time.Second
	// tendEvery is how often messages are looked for that another spool had better take.
	tendEvery = 250 * time.Millisecond
)

// load is what a spool owes answers for, in octets.
func (s *stream) load() int { return s.octets + s.frames*frameCost + s.large*largeCost }

// slow tells whether others should be asked first.
func (s *stream) slow(now time.Time) bool {
	return now.Before(s.aside) ||
		s.frames > 0 && now.Sub(s.heard) > silence ||
		!s.pushing.IsZero() && now.Sub(s.pushing) > blocked
}

// best returns the stream with the least load, among those that are not slow if there are any, and without those to the
// named spools; nil where there is none. c.mu must be held.
func (c *Client) best(without []string) (best *stream, slow bool) {
	if len(c.streams) == 0 {
		return nil, false
	}
	now := time.Now()
	c.turn++ // so that equal ones take turns
	for i := range c.streams {
		s := c.streams[(c.turn+i)%len(c.streams)]
		if slices.Contains(without, s.name) {
			continue
		}
		sSlow := s.slow(now)
		if best == nil || slow && !sSlow || slow == sSlow && s.load() < best.load() {
			best, slow = s, sSlow
		}
	}
	return best, slow
}

// ready tells whether a spool besides the named ones can take a message now. c.mu must be held.
func (c *Client) ready(without []string) bool {
	s, slow := c.best(without)
	return s != nil && !slow
}

// dispatch gives a call to a stream, or lets it wait for one. c.mu must be held.
func (c *Client) dispatch(call *call) {
	s, _ := c.best(call.refused)
	if s == nil {
		s, _ = c.best(nil) // one that had no room is better than none
	}
	if s == nil || call.heldFor != "" {
		c.waiting = append(c.waiting, call)
		return
	}
	c.attach(call, s)
}

// attach puts a call into a stream's queue. c.mu must be held.
func (c *Client) attach(call *call, s *stream) {
	if s.frames == 0 {
		s.heard = time.Now()
	}
	s.frames++
	s.octets += call.size
	s.queue = append(s.queue, call)
	s.signal()
	call.at = append(call.at, place{stream: s})
}

// detach takes a call away from a stream; false where it is not there. c.mu must be held.
func (c *Client) detach(call *call, s *stream) bool {
	i := call.find(s)
	if i < 0 {
		return false
	}
	s.frames--
	s.octets -= call.size
	call.at = slices.Delete(call.at, i, i+1)
	if s.gone && s.frames == 0 {
		s.signal() // its sender has nothing left to do
	}
	return true
}

// unload gives what is in a stream's queue to others. c.mu must be held.
func (c *Client) unload(s *stream) {
	queue := s.queue
	s.queue = nil
	for _, call := range queue {
		if c.detach(call, s) && len(call.at) == 0 {
			c.dispatch(call)
		}
	}
}

// tend looks after messages that wait for a spool which does not come back, or lie before one that has become slow, and
// gives up a spool that answers nothing while another one does.
func (c *Client) tend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.letGo(func(call *call) bool { return now.After(call.heldUntil) })
	c.owed = slices.DeleteFunc(c.owed, func(a abort) bool { return now.After(a.until) })
	if !c.ready(nil) {
		return
	}
	for _, s := range c.streams {
		if s.slow(now) {
			c.unload(s)
		}
		if s.frames > 0 && now.Sub(s.heard) > c.opts.SendTimeout {
			s.giveUp()
		}
	}
}

// letGo lets calls be taken by any spool that waited for the one whose stream broke. c.mu must be held.
func (c *Client) letGo(which func(*call) bool) {
	waiting := c.waiting
	c.waiting = nil
	for _, call := range waiting {
		if call.heldFor != "" && which(call) {
			call.heldFor = ""
		}
		if !call.done && len(call.at) == 0 {
			c.dispatch(call)
		}
	}
}

// join lets a stream take messages, unless there is one to that spool already: that is returned then. What the spool may
// have is submitted to it once more, though another was asked meanwhile: that can't tell before it has taken over.
func (c *Client) join(s *stream) (double *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.streams {
		if other.name == s.name {
			return other
		}
	}
	if s.gone {
		return nil
	}
	c.streams = append(c.streams, s)
	c.down = false
	c.outage.Stop()
	for _, call := range c.calls {
		if !call.done && slices.Contains(call.lost, s.name) {
			c.attach(call, s)
		}
	}
	c.takeBackOwed(s)
	c.letGo(func(call *call) bool { return call.heldFor == s.name })
	c.lookAround() // what it told of before counts from now on
	c.tell()
	return nil
}

// leave makes a stream take no more messages; what it was sent may still be answered.
func (c *Client) leave(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone {
		return
	}
	s.gone = true
	close(s.left)
	if i := slices.Index(c.streams, s); i >= 0 {
		c.streams = slices.Delete(c.streams, i, i+1)
		if len(c.streams) == 0 {
			c.outage.Reset(c.opts.Unreachable)
		}
	}
	c.unload(s)
}

// collect takes back what a stream that has ended left without an answer. Where the spool may be there still, it is asked
// first.
func (c *Client) collect(s *stream, hold bool) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if !c.detach(call, s) {
			continue
		}
		if call.done {
			c.forget(call)
			continue
		}
		count++
		call.lost = append(without(call.lost, s.name), s.name)
		if len(call.at) > 0 {
			continue
		}
		if hold {
			c.hold(call, s.name)
			continue
		}
		c.dispatch(call)
	}
	return count
}

// hold lets a call wait for a spool. c.mu must be held.
func (c *Client) hold(call *call, spool string) {
	call.heldFor, call.heldUntil = spool, time.Now().Add(holdFor)
	c.waiting = append(c.waiting, call)
}

// missed takes note that a spool whose stream broke can't be reached.
func (c *Client) missed(spool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letGo(func(call *call) bool { return call.heldFor == spool })
}

// giveUp tells the clients of messages that no spool can have that there is none. Those that were sent wait on, since a
// spool may have accepted them.
func (c *Client) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 {
		return
	}
	c.down = true
	c.tell()
	waiting := c.waiting
	c.waiting = nil
	for _, call := range waiting {
		switch {
		case call.done:
		case len(call.lost) > 0:
			c.waiting = append(c.waiting, call)
		default:
			call.answer <- answer{err: errUnreachable}
			c.finish(call)
		}
	}
}

// abandon ends all messages, at the end of Run.
func (c *Client) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	c.tell()
	for _, call := range c.calls {
		if !call.done {
			call.answer <- answer{err: errUnreachable}
			c.finish(call)
		}
	}
	c.waiting = nil
}

// tell wakes those who wait for a spool to be there, or for the news that there is none. c.mu must be held.
func (c *Client) tell() {
	close(c.news)
	c.news = make(chan struct{})
}
