package wire

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// in is what has been read from the client and not yet used: buf[r:w]. While there is nothing, there is no buffer.
type in struct {
	buf  []byte
	r, w int
	lent *[]byte     // what buf is, and
	from *bufferPool // where it goes back to

	sys     syscall.RawConn       // of a plain connection, nil where the system's can't be had
	attempt func(fd uintptr) bool // Conn.tryRead, made once
	tried   struct {              // what the last attempt gave
		pool *bufferPool
		err  error
	}
	first [1]byte // is read into while there is no buffer
}

// bufferPool lends buffers of a size.
type bufferPool struct{ sync.Pool }

func newBufferPool(size int) *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

const bufferSize = 4096 // of commands; longer than any

var (
	commandBuffers = newBufferPool(bufferSize)
	contentBuffers = newBufferPool(32 << 10) // less than a system call for each TCP segment
)

// borrow takes a buffer.
func (b *in) borrow(pool *bufferPool) {
	b.lent, b.from = pool.Get().(*[]byte), pool
	b.buf, b.r, b.w = *b.lent, 0, 0
}

// release gives the buffer back where nothing is in it.
func (b *in) release() {
	if b.lent != nil && b.r == b.w {
		b.from.Put(b.lent)
		b.lent, b.buf, b.r, b.w = nil, nil, 0, 0
	}
}

// readMore reads once from the client, into the buffer, which must have room, or into one of pool.
func (c *Conn) readMore(pool *bufferPool) error {
	n, err := c.readOnce(pool)
	c.w += n
	switch {
	case n > 0:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTimeout
	}
	return err
}

func (c *Conn) readOnce(pool *bufferPool) (int, error) {
	switch {
	case c.lent == nil && c.nc == c.raw && c.sys != nil:
		return c.readWhenReady(pool)
	case c.lent == nil && pool == commandBuffers:
		// The first octet is waited for without a buffer.
		n, err := c.nc.Read(c.first[:])
		if n > 0 {
			c.borrow(pool)
			c.buf[0] = c.first[0]
		}
		return n, err
	case c.lent == nil && c.nc != c.raw:
		c.borrow(commandBuffers) // TLS reads whole records into a buffer of its own: a large one here would only wait beside it
	case c.lent == nil:
		c.borrow(pool)
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buf):
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	return c.nc.Read(c.buf[c.w:])
}

// watch lets plain TCP connections be waited for without a buffer.
func (c *Conn) watch(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !canTryRead {
		return
	}
	if sys, err := tcp.SyscallConn(); err == nil {
		c.sys, c.attempt = sys, c.tryRead
	}
}
