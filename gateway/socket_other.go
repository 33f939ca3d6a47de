//go:build !unix

package gateway

import (
	"errors"
	"math"
	"syscall"
)

const canReusePort = false

func reusePort(string, string, syscall.RawConn) error { return errors.ErrUnsupported }

// maxOpenFiles is unlimited: sockets are no files here.
func maxOpenFiles() (uint64, error) { return math.MaxUint64, nil }
