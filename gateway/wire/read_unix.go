//go:build unix

package wire

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const canTryRead = true

// readWhenReady waits until there is something to read, and only then takes a buffer for it.
func (c *Conn) readWhenReady(pool *bufferPool) (int, error) {
	c.tried.pool = pool
	if err := c.sys.Read(c.attempt); err != nil {
		return 0, err
	}
	n := c.w
	c.w = 0 // the caller counts
	return n, c.tried.err
}

// tryRead tells whether the descriptor, which does not block, had something to say.
func (c *Conn) tryRead(fd uintptr) bool {
	c.borrow(c.tried.pool)
	n, err := syscall.Read(int(fd), c.buf)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), c.buf)
	}
	switch {
	case errors.Is(err, syscall.EAGAIN):
		c.release()
		return false
	case err != nil:
		n, err = 0, os.NewSyscallError("read", err)
	case n == 0:
		err = io.EOF
	}
	c.w, c.tried.err = n, err
	return true
}
