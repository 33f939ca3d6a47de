//go:build !unix

package wire

import "errors"

const canTryRead = false

func (c *Conn) readWhenReady(*bufferPool) (int, error) { return 0, errors.ErrUnsupported }

func (c *Conn) tryRead(uintptr) bool { return true }
