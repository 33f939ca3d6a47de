//go:build !linux

package process

// Nice does nothing here.
func Nice(int) error { return nil }
