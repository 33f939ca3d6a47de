package spool

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// ID is a message id: a UUIDv7 (RFC 9562, section 5.7), so that ids sort by time.
type ID = uuid.UUID

// Incarnation is one start of a spool. Numbers grow and are never used twice in a database. Every transaction of an
// incarnation first makes sure that it has not been fenced.
type Incarnation int64

// Store is the durable side of the spool. All methods may be called concurrently. Except for Register, each works for
// one incarnation and fails with [ErrFenced], having changed nothing, once that has been fenced.
//
// Two invariants hold over all tables at every commit; the audit checks them:
//
//   - A message without an outcome is either held in the memory of the incarnation that its row names, which is not
//     fenced, or it has at least one waiting row, or both.
//   - All waiting rows of a message have the same owner: an incarnation that is not fenced, or none.
type Store interface {
	// Register makes a new incarnation. Earlier ones of the same name are fenced and adopted at once: there is only
	// one process of a name.
	Register(ctx context.Context, reg Registration) (Lease, error)
	// Renew prolongs the lease. lowWater must lie below every id that the incarnation holds in memory or may still
	// accept, so that adoption need not look further back.
	Renew(ctx context.Context, inc Incarnation, lowWater ID, lease time.Duration) (Lease, error)
	// Commit makes a batch durable in one transaction: all of it or nothing.
	//
	// It is idempotent: rows that are there already by the same key are left as they are. On [ErrCommitUnknown] the
	// caller commits the same batch again until it is known. On a [*RowError] the named row is at fault and nothing was
	// written. Every other error means that nothing was written.
	Commit(ctx context.Context, inc Incarnation, batch *Batch) error
	// AdoptExpired fences every incarnation whose lease has ended and gives each of their unfinished messages a waiting
	// row that is due now and has no owner. It tells how many messages that were.
	AdoptExpired(ctx context.Context, inc Incarnation) (int, error)
	// HandOver fences the caller's own incarnation and makes its unfinished messages due without owner, as adoption
	// would. It is the last call of a spool that stops.
	HandOver(ctx context.Context, inc Incarnation) (int, error)
	// Claim takes ownership of messages that have a waiting row that is due, or soon will be, and no owner, those due longest
	// first, within limits, and loads them. Where one destination has very many, it may take several calls to find the others.
	Claim(ctx context.Context, inc Incarnation, limits ClaimLimits) ([]*Stored, error)
	// ReadContent gives length octets of content from offset on to take (all of the rest where length is 0), in pieces that
	// nobody changes from then on. [ErrNotFound] where there is no such message; what take returns ends it.
	ReadContent(ctx context.Context, id ID, offset, length int64, take func(piece []byte) error) error
	// Peers tells the advertised addresses of all live incarnations but the caller's, sorted.
	Peers(ctx context.Context, inc Incarnation) ([]string, error)
	// OpenCommands lists commands of operators that are not done, at most limit, and takes ownership of those of their
	// messages that nobody owns, due or not, and loads them.
	OpenCommands(ctx context.Context, inc Incarnation, limit int) ([]Command, []*Stored, error)
	// HearCommands calls heard when it listens, and then whenever there is a new command or another suspension, until the
	// context ends or the connection breaks.
	HearCommands(ctx context.Context, heard func()) error
	// Suspensions tells which destinations are suspended. Those that have ended may be among them. It needs no incarnation.
	Suspensions(ctx context.Context) ([]Suspension, error)
	// Usage tells how much there is in the store. Waiting rows are counted up to a number, since counting takes time.
	Usage(ctx context.Context, waitingUpTo int) (Usage, error)
	// Maintain creates the partitions that are needed soon and removes content of messages that never became whole.
	// It is called every few minutes.
	Maintain(ctx context.Context, inc Incarnation) error
}

// Registration introduces a spool to the store.
type Registration struct {
	Name    string        // unique among the spools of a database; at most 255 octets
	Address string        // host:port for workers and gateways; may be empty
	Lease   time.Duration // how long the incarnation lives without renewal
	Known   []Epoch       // what must be in the database, unless it has gone back in time
	Doubt   string        // why what must be there is not known; empty where it is
}

// Epoch is an incarnation as it is remembered outside the database.
type Epoch struct {
	Incarnation Incarnation `json:"incarnation"`
	ID          uuid.UUID   `json:"epoch"`
	Time        time.Time   `json:"time"`               // when it began, on the database's clock
	Renewals    int64       `json:"renewals,omitempty"` // how often its lease was renewed, at least
}

// Lease is an incarnation's right to act.
type Lease struct {
	Incarnation Incarnation
	Renewals    int64     // how often it was renewed
	Now         time.Time // the database's time when the lease was given
	Expires     time.Time // the end of the lease on the database's clock
	WindowStart time.Time // ids of messages may lie from here …
	WindowEnd   time.Time // … up to here: partitions exist for them
	Epoch       uuid.UUID // of the incarnation, random; from Register alone
	// Held says that the database has gone back in time, as after a restored backup: nothing may be sent, since it may have
	// been sent already, until an operator resumes.
	Held bool
}

// Usage is how much there is in the store.
type Usage struct {
	Waiting int   // waiting rows
	Bytes   int64 // of everything
}

// ClaimLimits bound what is claimed at a time.
type ClaimLimits struct {
	Messages       int           // at most so many
	PerDestination int           // by each destination; [DestinationAll] is none
	Ahead          time.Duration // also what will be due by then; from 0
	Without        []string      // nothing by rows of these destinations
	// Suspended are patterns of destinations by whose rows nothing is claimed unless the time of their recipients is up.
	// Rows that are of no destination ("!all") are claimed all the same.
	Suspended []pattern.Pattern
}

// Batch is what one transaction writes. Rows within a kind are in order.
type Batch struct {
	Chunks   []Chunk   // content that arrived before its message was whole
	Messages []Message // new messages
	Attempts []Attempt // permits and results that do not end a message
	Outcomes []Outcome // messages whose last recipient has ended
	Waits    []Wait    // waiting rows to insert or to replace
	Unwaits  []WaitKey // waiting rows to delete
	Releases []ID      // messages whose waiting rows lose their owner
	Commands []CommandDone
	Searches []Search // search columns, by their own leave: never the reason for a commit
	Refusals []Refusal
}

// Chunk is a piece of the content of a message whose content does not stand in its row.
type Chunk struct {
	Message ID
	Seq     int32 // from 0
	Offset  int64 // octets before this chunk
	Data    []byte
}

// Message is an accepted message as it is stored.
type Message struct {
	ID       ID
	Owner    Incarnation
	Envelope *mailv1.Envelope
	Edits    []*mailv1.Edit
	Verdict  *mailv1.Verdict // nil where it was accepted before it was judged
	Trace    *mailv1.TraceContext
	Size     int64
	Hash     []byte // SHA-256 of envelope (sender, recipients) and content
	Content  []byte // nil where it stands in chunks
	Accepted time.Time
}

// AttemptKind says what an attempt row means.
type AttemptKind string

// The kinds of attempt rows.
const (
	AttemptPermit AttemptKind = "permit" // a worker may pass the point of no return
	AttemptResult AttemptKind = "result" // how an attempt went
	AttemptNote   AttemptKind = "note"   // something else that must not be lost, such as a worker's death
)

// Attempt is one append-only row about a message that has not ended by it.
type Attempt struct {
	ID          ID // a UUIDv7 of its own
	Message     ID
	Kind        AttemptKind
	Destination string
	Number      int32  // of the attempt for the destination, from 1
	Token       []byte // of the job
	Recipients  []int32
	// Ended lists the recipients that ended by this row, with their states.
	Ended   []RecipientEnd
	Journal []*mailv1.JournalEntry // what happened since the last row of this message
	Verdict *mailv1.Verdict        // with the first row after the verdict; nil otherwise
	Time    time.Time
}

// RecipientEnd is how a recipient ended.
type RecipientEnd struct {
	Recipient int32
	State     mailv1.RecipientState
	Reply     *mailv1.Reply // the last reply about it, if any
}

// Outcome is the one row that ends a message.
type Outcome struct {
	Message    ID
	Recipients []RecipientEnd // every recipient, in the order of the envelope
	// Journal is all of the journal that is not in attempt rows.
	Journal []*mailv1.JournalEntry
	Verdict *mailv1.Verdict // where it stands in no other row; else nil
	Time    time.Time
}

// WaitReason says what a waiting row waits for.
type WaitReason string

// The reasons to wait.
const (
	WaitRetry    WaitReason = "retry"    // the next attempt for a destination
	WaitUnknown  WaitReason = "unknown"  // the next attempt after one whose outcome is not known
	WaitFilter   WaitReason = "filter"   // a filter said: later
	WaitSchedule WaitReason = "schedule" // the time before which the sender does not want it sent
	WaitHold     WaitReason = "hold"     // an operator, or the end of the hold
	WaitAll      WaitReason = "all"      // an owner: every recipient that has not ended and has no other row
)

// Pseudo-destinations of waiting rows that are not about one destination. No domain starts with "!".
const (
	DestinationFilter = "!filter"
	DestinationHold   = "!hold"
	DestinationAll    = "!all"
)

// WaitKey is the key of a waiting row.
type WaitKey struct {
	Message     ID
	Destination string
}

// Wait is a waiting row: the working set of what is not on its way right now.
type Wait struct {
	WaitKey
	Reason     WaitReason
	Recipients []int32 // empty with WaitAll
	Attempts   int32   // made for the destination so far
	NextAt     time.Time
	ExpiresAt  time.Time // when the recipients end whatever happened
	// Owned says whether the caller keeps the message. It holds for all rows of the message: the last one written
	// decides.
	Owned     bool
	LastReply *mailv1.Reply // what it was deferred for
}

// Search holds what people look for.
type Search struct {
	Message         ID
	Subject         string // decoded, at most 998 octets
	HeaderMessageID string // without angle brackets, at most 998 octets
	From            string // the first address, at most 320 octets
}

// Stored is a message as it was loaded, with all that is known of it.
type Stored struct {
	Message  // Content is nil where it is over the inline limit
	Attempts []Attempt
	Waits    []Wait
	// Err tells why the message could not be decoded; then only ID and Waits are certain.
	Err error
}

// The errors of a store.
var (
	// ErrFenced means that the incarnation may no longer act: another has taken over.
	ErrFenced = errors.New("spool: this incarnation has been fenced")
	// ErrCommitUnknown means that a transaction may or may not have been committed.
	ErrCommitUnknown = errors.New("spool: the outcome of a commit is not known")
	// ErrNotFound means that there is no such message.
	ErrNotFound = errors.New("spool: no such message")
	// ErrBadCursor means that a cursor is not one that the store gave.
	ErrBadCursor = errors.New("spool: this is no cursor")
	// ErrPastEnd means that content was asked for from behind its end.
	ErrPastEnd = errors.New("spool: the offset lies behind the end of the content")
	// ErrUnavailable means that the database could not be reached or is shutting down.
	ErrUnavailable = errors.New("spool: the database is not available")
	// ErrFull means that the database has no room.
	ErrFull = errors.New("spool: the database is out of space")
)

// RowError names the message whose rows the database refused (SQLSTATE class 22 or 23).
type RowError struct {
	Message ID // uuid.Nil where the database did not tell
	Err     error
}

func (e *RowError) Error() string {
	return "spool: a row of " + e.Message.String() + ": " + e.Err.Error()
}

// Unwrap returns the database's error.
func (e *RowError) Unwrap() error { return e.Err }
