package wire

import (
	"crypto/tls"
	"io"
	"time"
)

// startTLS answers STARTTLS and makes the handshake. It tells whether the library may go on, with an empty transaction.
// (RFC 3207, section 4.)
func (c *Conn) startTLS() bool {
	switch {
	case len(c.text) != len(c.verb):
		c.refuse("501 5.5.4 STARTTLS takes no parameters")
		return false
	case c.nc != c.raw:
		c.refuse("503 5.5.1 TLS is on already")
		return false
	case c.opts.TLS == nil:
		c.refuse("502 5.5.1 STARTTLS is not offered")
		return false
	}
	c.say("220 2.0.0 Ready to start TLS")
	if err := c.flush(); err != nil {
		_ = c.fail(err) // the caller sees it
		return false
	}
	// What came behind the command was sent in the clear, by whomever: it must not count inside TLS (section 6).
	dropped := c.w - c.r
	c.r = c.w
	c.release()
	if err := c.handshake(dropped); err != nil {
		_ = c.fail(err) // the caller sees it
		return false
	}
	// What was said before is forgotten (section 4.2): the library by a RSET, whose reply nobody awaits; and MAIL is
	// not taken before the next EHLO.
	c.greeted, c.extended = false, false
	c.line, c.text, c.verb, c.swallow = []byte("RSET\r\n"), "RSET", "RSET", true
	return true
}

// handshake puts TLS over the connection. Shutdown ends it.
func (c *Conn) handshake(dropped int) error {
	deadline := time.Now().Add(c.opts.HandshakeTimeout)
	if !c.startIdle(deadline) {
		return io.EOF
	}
	conn := tls.Server(c.raw, c.opts.TLS)
	err := c.raw.SetWriteDeadline(deadline)
	if err == nil {
		err = conn.Handshake() //nolint:noctx // the deadlines bound it
	}
	c.endIdle()
	if err != nil {
		c.owner.Failed(err)
		return err
	}
	c.nc = conn
	c.owner.Secured(conn.ConnectionState(), dropped)
	return nil
}
