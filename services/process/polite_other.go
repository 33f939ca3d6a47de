//go:build !linux

package process

// Polite runs functions as they are: threads have no priority of their own here.
type Polite struct{}

// NewPolite makes nothing here.
func NewPolite(int, int) (*Polite, error) { return &Polite{}, nil }

// Do runs f.
func (*Polite) Do(f func()) { f() }

// Close does nothing.
func (*Polite) Close() {}
