package gateway

import "context"

// Directory knows the recipients of accepted domains. The gateway calls it from many goroutines at once.
type Directory interface {
	// Lookup tells what is known of an address, before ctx ends. After an error the client is told 451.
	Lookup(ctx context.Context, address string) (DirectoryEntry, error)
}

// DirectoryEntry is what a directory knows of an address.
type DirectoryEntry struct {
	Known   bool     // there is such a recipient
	Aliases []string // the mailboxes that get its mail; empty: the address itself
}
