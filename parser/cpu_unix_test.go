//go:build unix

package parser

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what the process has used: it says the same on a busy machine, as the time of day does not.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
