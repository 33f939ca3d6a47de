//go:build !unix

package parser

import (
	"testing"
	"time"
)

// cpuTime is the time of day where the time of the process is not to be had.
func cpuTime(*testing.T) time.Duration { return time.Duration(time.Now().UnixNano()) }
