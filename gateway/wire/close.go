package wire

import (
	"io"
	"net"
	"time"
)

// Close writes pending replies and closes the connection. The session's goroutine calls it.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()

	err := c.flush()
	if err == nil && c.hangUp {
		c.linger()
	}
	c.out = nil
	if c.failed == nil {
		c.failed = net.ErrClosed
	}
	if cerr := c.nc.Close(); err == nil {
		err = cerr
	}
	c.r = c.w
	c.release()
	c.owner.Closed()
	return err
}

// linger waits for the client to have read the last reply. A connection that is closed with octets unread is reset,
// and the reset may overtake the reply.
func (c *Conn) linger() {
	nc := c.nc
	if proxied, ok := nc.(interface{ Raw() net.Conn }); ok { // go-proxyproto's
		nc = proxied.Raw()
	}
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.raw.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes) // whatever it is, the connection closes next
}

// Shutdown makes the session end: at once where it waits for a command, else after the command under way, with 421.
// (RFC 5321, section 3.8.)
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	if c.idle {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // fails only where the connection has closed
	}
}

// CutOff is Shutdown that does not wait for content either: a client that still sends some is told 421 in place of its reply.
func (c *Conn) CutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping, c.cutOff = true, true
	_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // fails only where the connection has closed
}

// limitContent sets the deadline of a wait for content.
func (c *Conn) limitContent(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutOff {
		deadline = time.Unix(1, 0)
	}
	return c.raw.SetReadDeadline(deadline)
}

func (c *Conn) isCutOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cutOff
}

// Kill closes the connection without a word.
func (c *Conn) Kill() { _ = c.raw.Close() }

// startIdle sets the deadline of a wait for a command and tells whether the session may wait at all.
func (c *Conn) startIdle(deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = !c.stopping && c.raw.SetReadDeadline(deadline) == nil
	return c.idle
}

// endIdle tells whether Shutdown was called.
func (c *Conn) endIdle() (stopping bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = false
	return c.stopping
}

// stops is how the reply begins by which the server's stop ends a session.
const stops = "421 4.3.2 "

// sayGoodbye ends a session that the server no longer serves.
func (c *Conn) sayGoodbye() error {
	c.lastWords(stops + c.opts.Hostname + " Service shutting down")
	return c.fail(io.EOF)
}
