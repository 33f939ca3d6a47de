package gateway

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// InlineLimit is the most octets of content that a submission carries in memory; a larger message is streamed.
const InlineLimit = 128 << 10

// Spool makes messages durable. The gateway calls it from many goroutines at once.
type Spool interface {
	// Submit returns without error only once the message is durable (promise P1). It carries the trace of its span in
	// ctx on to the message. The end of ctx takes the message back, as far as that is still possible. An error that
	// holds a [smtpreply.Error] is told to the client; every other one is told as 451.
	Submit(ctx context.Context, sub *Submission) (Receipt, error)
	// Now is the spool's clock, from which ids are minted.
	Now() time.Time
}

// Submission is a message on its way to the spool. The spool must not change what it points to.
type Submission struct {
	ID       uuid.UUID // a UUIDv7 from the spool's clock
	Envelope *mailv1.Envelope
	Edits    []*mailv1.Edit // what the gateway adds: the Received field
	// Content is the whole content where it has at most InlineLimit octets. It belongs to the spool until Submit
	// returns.
	Content []byte
	// Stream is the content of a larger message, nil otherwise. It is read as the client sends it, until io.EOF. Any
	// other error means that the message must not be accepted: Submit takes it back and returns that error.
	Stream io.Reader
	// SizeHint is the number of octets that the client announced for a streamed message; 0 where it did not.
	SizeHint int64
	// Deadline is how long the client waits for its reply, counted from the call of Submit.
	Deadline time.Duration
}

// Receipt says that a message is durable.
type Receipt struct {
	// SuspectedDuplicateOf is the id of an earlier message with the same envelope and content; empty if none is known.
	SuspectedDuplicateOf string
}
