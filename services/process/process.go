// Package process is the chassis on which every Rohrpost process runs: its configuration, log, telemetry, certificates,
// gRPC servers and clients, and the order in which its parts start and stop.
//
// It knows nothing of mail. The wiring in package services puts the domains onto it.
package process

import (
	"errors"
	"fmt"
)

// UsageError is a mistake in what the user gave: a flag, a configuration key, a file name. Its text is one line that
// names the thing and the mend.
type UsageError struct {
	text  string
	cause error
}

// Usage makes a [*UsageError]. The format may hold one %w.
func Usage(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &UsageError{text: err.Error(), cause: errors.Unwrap(err)}
}

// Error returns the line.
func (e *UsageError) Error() string { return e.text }

// Unwrap returns the cause, nil if there is none.
func (e *UsageError) Unwrap() error { return e.cause }

// The exit codes of the program.
const (
	ExitOK      = 0
	ExitFailure = 1 // something did not work
	ExitUsage   = 2 // the user has to write something else
)

// ExitCode is the exit code for what a command returned: 0 for nil, 2 for a [*UsageError], 1 otherwise.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	default:
		return ExitFailure
	}
}
