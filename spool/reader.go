package spool

import (
	"context"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Reader answers questions about what is durable, for operators. It needs no incarnation.
type Reader interface {
	// List lists messages, newest first, from before an id on (uuid.Max for the newest).
	List(ctx context.Context, before ID, limit int) ([]*Record, error)
	// Get reads one message with all its rows. [ErrNotFound] if there is none.
	Get(ctx context.Context, id ID) (*Record, error)
	// FindByHeaderMessageID tells the latest message with a Message-ID. [ErrNotFound] if there is none yet.
	FindByHeaderMessageID(ctx context.Context, headerID string) (ID, error)
	// Events reads up to limit events after a cursor, in the order in which they became visible, such that no event
	// that commits later can have a smaller cursor. The empty cursor means now.
	Events(ctx context.Context, cursor string, limit int) (events []StoredEvent, next string, err error)
}

// Record is a message as operators see it. Its Content is never loaded.
type Record struct {
	Stored
	Outcome *Outcome // nil where the message has not ended
	Search  Search   // zero where it has not been parsed yet
	// OwnerName is the name of the incarnation that owns it, empty if none does.
	OwnerName string
}

// StoredEvent is a row that became durable.
type StoredEvent struct {
	Cursor  string
	Message ID
	Ended   bool
	Time    time.Time
	Journal []*mailv1.JournalEntry // what the row added; for an acceptance a single "accepted" entry
}

// Queue is what waits in the store for one destination.
type Queue struct {
	Destination  string
	Messages     int64
	Recipients   int64
	Due          int64     // messages that are due and owned by nobody
	NextAt       time.Time // when the first is due
	WaitingSince time.Time // when the first began to wait
	LastReply    string    // code, enhanced code or "-", text; empty where there is none
}
