package spool

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// Options is what a spool needs beside its configuration.
type Options struct {
	// Name is unique among the spools of a database; at most 255 octets.
	Name string
	// Address is the host:port for workers and gateways, told to their peers; may be empty.
	Address string
	// Logger is slog.Default where nil.
	Logger *slog.Logger
	// TracerProvider is the global one where nil.
	TracerProvider trace.TracerProvider
	// Now is time.Now where nil.
	Now func() time.Time
	// Epochs keep the spool's epochs outside the database; nil where nothing does, so that a database restored from a backup
	// is noticed only by spools that run meanwhile.
	Epochs EpochKeeper
	// Faults strike the spool in tests; nil in production.
	Faults *fault.Faults
}

// EpochKeeper remembers epochs where a restored backup of the database does not reach them.
type EpochKeeper interface {
	Load() ([]Epoch, error)
	Save(epochs []Epoch) error
}

// Spool is the life of the messages of one process. All methods may be called concurrently.
type Spool struct {
	cfg   Config
	store Store
	opts  Options
	log   *slog.Logger
	spans spans

	// mu guards the core. Only the loop changes it; others look.
	mu   sync.Mutex
	core *core

	inboxMu sync.Mutex
	inbox   []item
	closed  bool // nobody reads the inbox any more
	wake    chan struct{}

	// lease is what the spool may do now; nil while it has no incarnation.
	lease    atomic.Pointer[held]
	clock    atomic.Pointer[reading] // what the database's clock told last; nil before it did
	hello    atomic.Pointer[Hello]
	away     atomic.Bool // the store did not answer lately
	stopping atomic.Bool
	full     atomic.Bool  // the store has as much as it may have
	backlog  atomic.Int64 // octets of submissions that are not answered

	commits commits
	told    []*Worker     // whose sinks are to be flushed; the loop's
	epochs  []Epoch       // the last few, the newest at the end; own's
	unsaved bool          // they could not be written; own's
	unread  string        // why the epochs could not be read, until the spool is registered; own's
	poke    chan struct{} // asks for a claim
	ordered chan struct{} // asks to look for commands
	chunks  chan struct{} // a place for each chunk of an upload that is in memory
	doubt   chan doubt    // asks to look at the lease at once
}

// held is a lease by our own clock.
type held struct {
	Lease
	end time.Time // when to stop acting, on our monotonic clock
}

// item is something in the inbox: an event of the core, or the engine's own business.
type item struct {
	event event
	do    func(ctx context.Context) // ctx is the loop's
}

// New makes a spool over a store. It does nothing until Run.
func New(cfg Config, store Store, opts Options) (*Spool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("spool.%w", err)
	}
	if opts.Name == "" || len(opts.Name) > 255 {
		return nil, fmt.Errorf("spool.name: %q: set 1 to 255 octets", opts.Name)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("reading random octets: %w", err)
	}
	s := &Spool{
		cfg: cfg, store: store, opts: opts, log: opts.Logger.With("spool", opts.Name),
		spans: newSpans(opts.TracerProvider, cfg.TraceWindow),
		core:  newCore(cfg, opts.Name, 0, seed),
		wake:  make(chan struct{}, 1), poke: make(chan struct{}, 1), ordered: make(chan struct{}, 1), doubt: make(chan doubt, 1),
	}
	s.commits.work = make(chan *commit, cfg.CommitsInFlight)
	s.chunks = make(chan struct{}, max(1, int64(cfg.Backlog)/chunkSize))
	return s, nil
}

// Hello tells who the spool is. It is false while the spool has no incarnation.
func (s *Spool) Hello() (Hello, bool) {
	h := s.hello.Load()
	if h == nil {
		return Hello{}, false
	}
	hello := *h
	hello.Time = s.now()
	return hello, true
}

// Ready tells whether the spool has an incarnation, its store answers and it is not stopping.
func (s *Spool) Ready() bool {
	return s.lease.Load() != nil && !s.away.Load() && !s.stopping.Load()
}

// reading is what the database's clock told, and when that was on ours.
type reading struct{ theirs, ours time.Time }

// now is the database's time as far as we know it. Since it last told, our monotonic clock counts, so that it does no harm
// when somebody sets our clock.
func (s *Spool) now() time.Time {
	now := s.opts.Now()
	if r := s.clock.Load(); r != nil {
		return r.theirs.Add(now.Sub(r.ours))
	}
	return now
}

// mayAct tells whether the incarnation is certainly not fenced.
func (s *Spool) mayAct() bool {
	l := s.lease.Load()
	return l != nil && s.opts.Now().Before(l.end)
}

// Submit hands a message over. done is called once, from another goroutine: with a receipt as soon as the message is
// durable, or with a [*smtpreply.Error]. It must not block. The spool keeps what the submission points to; the caller
// must not change it.
func (s *Spool) Submit(sub Submission, done func(Receipt, error)) {
	size := int64(len(sub.Content))
	w := &waiter{id: sub.ID, done: done, size: size}
	if err := s.admissible(sub, size); err != nil {
		go done(Receipt{}, err)
		return
	}
	if err := s.opts.Faults.Reach(fault.AcceptReceived); err != nil {
		go done(Receipt{}, smtpreply.From(err))
		return
	}
	s.backlog.Add(size)
	w.deadline = s.now().Add(sub.Deadline.Sub(s.opts.Now()))
	row := Message{ID: sub.ID, Envelope: sub.Envelope, Edits: sub.Edits, Content: sub.Content, Size: size}
	row.Trace, w.span = s.spans.accept(sub)
	if sub.Upload != nil {
		sub.Upload.submit(row, w)
		return
	}
	row.Hash = hashOf(sub.Envelope, contentHash(sub.Content))
	s.postSubmitted(submitted{row: row, waiter: w, again: sub.Again})
}

func (s *Spool) postSubmitted(e submitted) {
	if !s.post(item{event: e}) {
		go s.answer(e.waiter, Receipt{}, errStopping())
	}
}

// admissible tells why a message can't be taken now. What comes again may be durable, and a client that is told 451 then
// sends it twice (promise P3): it is taken though there is no room. How much that is, is bounded by what gateways may leave
// unanswered.
func (s *Spool) admissible(sub Submission, size int64) error {
	switch l := s.lease.Load(); {
	case s.stopping.Load():
		return errStopping()
	case l == nil || s.away.Load():
		return errAway()
	case !l.admits(sub.ID):
		return smtpreply.OfMessage(fmt.Errorf("id %s is outside the open window from %s to %s", sub.ID, l.WindowStart, l.WindowEnd))
	case !sub.Again && s.full.Load():
		return errFull()
	case !sub.Again && s.backlog.Load()+size > int64(s.cfg.Backlog):
		return smtpreply.New(451, "4.3.1", "Too busy, try again later")
	case len(sub.Envelope.GetRecipients()) == 0:
		return smtpreply.OfMessage(fmt.Errorf("message %s has no recipients", sub.ID))
	case len(sub.Content) > InlineLimit:
		return smtpreply.OfMessage(fmt.Errorf("message %s of %d octets came without an upload", sub.ID, size))
	}
	return nil
}

func errStopping() error { return smtpreply.New(451, "4.3.2", "Shutting down, try again later") }

func errAway() error { return smtpreply.New(451, "4.3.0", "Temporary system problem, try again later") }

// admits tells whether an id lies in the window for which partitions exist.
func (l *held) admits(id ID) bool {
	if id.Version() != 7 {
		return false
	}
	sec, nsec := id.Time().UnixTime()
	at := time.Unix(sec, nsec)
	return !at.Before(l.WindowStart) && at.Before(l.WindowEnd)
}

// Abort takes a submission back that has not been answered: it is dropped, or withdrawn where it may be durable. Its
// done is called with an error.
func (s *Spool) Abort(id ID) { s.post(item{event: aborted{id: id}}) }

// Join takes on a worker. instance is the same on all its streams and of no other start of a worker; empty where it does
// not tell. It returns a [*smtpreply.Error] (temporary) while the spool has no incarnation or is stopping.
func (s *Spool) Join(stage Stage, name, instance string, sink WorkerSink) (*Worker, error) {
	if stage < StageParser || stage > StageDeliver {
		return nil, fmt.Errorf("joining worker %q: there is no stage %d", name, stage)
	}
	if s.stopping.Load() {
		return nil, errStopping()
	}
	if s.hello.Load() == nil {
		return nil, errAway()
	}
	w := &Worker{spool: s, sink: sink}
	w.peer = &peer{stage: stage, name: name, instance: instance, worker: w}
	s.post(item{event: joined{peer: w.peer}})
	return w, nil
}

// ReadContent gives length octets of the content of a job's message from offset on to take, all of the rest where length is
// 0, in pieces that nobody changes from then on. [ErrNotFound] where the token is not or no longer valid, [ErrPastEnd] where
// offset is more than the content's size; else what take or the store returned.
func (s *Spool) ReadContent(ctx context.Context, token []byte, offset, length int64, take func(piece []byte) error) error {
	s.mu.Lock()
	row, last, ok := s.core.content(token)
	s.mu.Unlock()
	if !ok || offset < 0 || length < 0 {
		return ErrNotFound
	}
	if offset > row.Size {
		return ErrPastEnd
	}
	end := row.Size
	if length > 0 && length < end-offset {
		end = offset + length
	}
	if row.Content != nil {
		return take(row.Content[offset:end])
	}
	for offset < end {
		data := s.core.fresh.at(row.ID, offset)
		if len(data) == 0 {
			return s.store.ReadContent(ctx, row.ID, offset, end-offset, take)
		}
		data = data[:min(int64(len(data)), end-offset)]
		if err := take(data); err != nil {
			return err
		}
		offset += int64(len(data))
	}
	if last && end == row.Size {
		s.core.fresh.drop(row.ID)
	}
	return nil
}

// Live tells what only this process knows of a message that it holds; false where it does not.
func (s *Spool) Live(id ID) (Live, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.live(id)
}

// post puts something into the inbox. It never waits. It is false where nobody reads that any more.
func (s *Spool) post(i item) bool {
	s.inboxMu.Lock()
	closed := s.closed
	if !closed {
		s.inbox = append(s.inbox, i)
	}
	s.inboxMu.Unlock()
	notifyChan(s.wake)
	return !closed
}

func notifyChan(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
