//go:build !unix

package services

import "io"

// lockFolder does nothing where there is no flock: PostgreSQL refuses to run twice on a folder by itself.
func lockFolder(string) (io.Closer, error) { return io.NopCloser(nil), nil }
