package spool

import (
	"errors"
	"fmt"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Stage is a kind of work.
type Stage uint8

// The stages, in the order in which a message passes them.
const (
	StageParser Stage = iota + 1
	StageFilter
	StageDeliver
)

// String is the stage's word: folder, subcommand, service name.
func (s Stage) String() string {
	switch s {
	case StageParser:
		return "parser"
	case StageFilter:
		return "filter"
	case StageDeliver:
		return "deliver"
	default:
		return "unknown"
	}
}

// Submission is a message that a gateway hands over.
type Submission struct {
	ID       ID
	Envelope *mailv1.Envelope
	Edits    []*mailv1.Edit
	Trace    *mailv1.TraceContext
	// Deadline is when the client no longer waits: the message must not be accepted after it. On the local clock.
	Deadline time.Time
	// Content is the whole content, at most InlineLimit octets, or nil where Upload carries it.
	Content []byte
	// Upload is a finished upload, for larger content.
	Upload *Upload
	// Again says that the message was submitted before and may be durable, so that no verdict may refuse it any more.
	Again bool
}

// InlineLimit is how much content rides in a job and stays in the owner's memory, in octets.
const InlineLimit = 128 << 10

// Receipt is what a gateway learns of an accepted message.
type Receipt struct {
	// SuspectedDuplicateOf is an earlier message with the same envelope and content; uuid.Nil where none is known.
	SuspectedDuplicateOf ID
}

// Hello is what a spool tells of itself on every stream.
type Hello struct {
	Name        string
	Incarnation Incarnation
	Time        time.Time // Postgres's time now
	Peers       []string  // advertised addresses of the other spools
}

// Job is one message at one stage with one worker. It is read-only.
type Job struct {
	Token    []byte
	Stage    Stage
	ID       ID
	Envelope *mailv1.Envelope
	Edits    []*mailv1.Edit
	Trace    *mailv1.TraceContext
	Lease    time.Duration
	Size     int64
	Content  []byte // nil where Size is over InlineLimit

	// Parsed is what a filter job judges; nil where the message could not be parsed.
	Parsed *mailv1.ParsedMessage
	// Destination, Recipients and Attempt are for a deliver job.
	Destination string
	Recipients  []int32
	Attempt     int32
	// Bounce makes a deliver job one that only writes the notification for these recipients.
	Bounce []*mailv1.RecipientResult
}

// WorkResult is what a worker says came of a job. Exactly one of the fields Parsed, Verdict, Attempt and Failure is set;
// Notifications may come with Attempt.
type WorkResult struct {
	Parsed        *mailv1.ParsedMessage
	Verdict       *mailv1.Verdict
	Attempt       *mailv1.Attempt
	Notifications []Notification
	Failure       string
}

// Notification is a delivery status notification to be inserted when its recipients end.
type Notification struct {
	Envelope *mailv1.Envelope
	Content  []byte
}

// AckStatus is whether a result counted.
type AckStatus uint8

// What became of a result.
const (
	AckCounted AckStatus = iota + 1 // it is durable where it has to be
	AckStale                        // it never will count
	AckAgain                        // present it again soon
)

// WorkerSink takes what the spool tells a worker. Its methods are called from the spool's own loop: they must not block
// and must not call the spool.
type WorkerSink interface {
	SendJob(job *Job)
	AnswerPermit(token []byte, granted bool)
	AckResult(token []byte, status AckStatus)
	CancelJob(token []byte, reason string)
	// SendDrain tells that the spool stops: no more jobs and permits.
	SendDrain()
	// SendHello tells that the hello has changed.
	SendHello(hello Hello)
	// Flush comes after some of the others: what they told need not go out before, so that it goes together.
	Flush()
}

// Live is what only the owner knows of a message that is under way.
type Live struct {
	Recipients []RecipientStatus
	Journal    []*mailv1.JournalEntry // since the last durable row
	Parsed     *mailv1.ParsedMessage
	Verdict    *mailv1.Verdict
}

// RecipientStatus is where a recipient stands.
type RecipientStatus struct {
	State     mailv1.RecipientState
	LastReply *mailv1.Reply
	NextAt    time.Time // zero if it does not wait
}

// ErrExists is the cause in a [RowError] of Commit where a message's row is there already and is not the caller's to
// send: it names another owner, or the message has an outcome, or a waiting row that the caller does not own. A row that
// names the caller and has none of these is left as it is, as when a batch is committed again.
var ErrExists = errors.New("spool: the message exists already")

// ErrSettled is [ErrExists] where the message can't be withdrawn any more, so that whoever submits it again may be told
// that it is accepted: it has been worked at, has ended by other than withdrawal, or waits for an owner.
var ErrSettled = fmt.Errorf("%w and is accepted", ErrExists)

// ErrWithdrawn is [ErrExists] where the message was withdrawn: whoever submits it again must be told 451.
var ErrWithdrawn = fmt.Errorf("%w and was withdrawn", ErrExists)
