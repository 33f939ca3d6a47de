// Package spooltest is a store in memory for tests of what stands on a spool: small, but as honest about commits,
// fencing and ownership as the real one, and ready to fail where a test wants it to.
package spooltest

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

// Store is a [spool.Store] in memory. It is safe for concurrent use.
type Store struct {
	// Now is the database's clock. Set it before the first use.
	Now func() time.Time

	mu           sync.Mutex
	faults       Faults
	next         spool.Incarnation
	incarnations map[spool.Incarnation]*incarnation
	messages     map[spool.ID]*spool.Message
	chunks       map[spool.ID]map[int32]spool.Chunk
	attempts     map[spool.ID][]spool.Attempt
	outcomes     map[spool.ID]spool.Outcome
	waits        map[spool.ID]map[string]*wait
	searches     map[spool.ID]spool.Search
	refusals     []spool.Refusal
	known        map[*spool.Batch]bool // batches whose outcome was told to be unknown, and whether they are in
	batches      []int                 // how many rows each commit had
	commands     []spool.Command       // by number, from 1
	done         map[int64]string      // what came of them
	suspensions  []spool.Suspension
	violation    error // of the invariants, the first one met
}

// Faults are what goes wrong. Each function may be nil; it is called without lock and may wait.
type Faults struct {
	// Call is asked before every call; its error is the call's.
	Call func(method string) error
	// Commit is asked before a batch is committed. Where err is not nil it is the caller's answer, and apply tells
	// whether the batch becomes durable all the same.
	Commit func(inc spool.Incarnation, b *spool.Batch) (apply bool, err error)
}

type incarnation struct {
	name, address string
	expires       time.Time
	fenced        bool
}

type wait struct {
	spool.Wait
	owner spool.Incarnation
}

// NewStore returns an empty store on the machine's clock.
func NewStore() *Store {
	return &Store{
		Now:          time.Now,
		incarnations: map[spool.Incarnation]*incarnation{},
		messages:     map[spool.ID]*spool.Message{},
		chunks:       map[spool.ID]map[int32]spool.Chunk{},
		attempts:     map[spool.ID][]spool.Attempt{},
		outcomes:     map[spool.ID]spool.Outcome{},
		waits:        map[spool.ID]map[string]*wait{},
		searches:     map[spool.ID]spool.Search{},
		known:        map[*spool.Batch]bool{},
		done:         map[int64]string{},
	}
}

// SetFaults says what goes wrong from now on.
func (s *Store) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Fence fences an incarnation and gives its messages away, as an adopter would.
func (s *Store) Fence(inc spool.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopt(inc)
}

// call asks the fault and takes the lock. The caller unlocks unless there is an error.
func (s *Store) call(ctx context.Context, method string, inc spool.Incarnation) error {
	s.mu.Lock()
	fault := s.faults.Call
	s.mu.Unlock()
	if fault != nil {
		if err := fault(method); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if i := s.incarnations[inc]; inc != 0 && (i == nil || i.fenced) {
		s.mu.Unlock()
		return spool.ErrFenced
	}
	return nil
}

// Register is part of [spool.Store].
func (s *Store) Register(ctx context.Context, reg spool.Registration) (spool.Lease, error) {
	if err := s.call(ctx, "Register", 0); err != nil {
		return spool.Lease{}, err
	}
	defer s.mu.Unlock()
	for inc, i := range s.incarnations {
		if i.name == reg.Name && !i.fenced {
			s.adopt(inc)
		}
	}
	s.next++
	i := &incarnation{name: reg.Name, address: reg.Address, expires: s.Now().Add(reg.Lease)}
	s.incarnations[s.next] = i
	return s.lease(s.next, i), nil
}

func (s *Store) lease(inc spool.Incarnation, i *incarnation) spool.Lease {
	now := s.Now()
	return spool.Lease{
		Incarnation: inc, Now: now, Expires: i.expires,
		WindowStart: now.Add(-time.Hour), WindowEnd: now.Add(time.Hour),
	}
}

// Renew is part of [spool.Store].
func (s *Store) Renew(ctx context.Context, inc spool.Incarnation, _ spool.ID, lease time.Duration) (spool.Lease, error) {
	if err := s.call(ctx, "Renew", inc); err != nil {
		return spool.Lease{}, err
	}
	defer s.mu.Unlock()
	i := s.incarnations[inc]
	i.expires = s.Now().Add(lease)
	return s.lease(inc, i), nil
}

// AdoptExpired is part of [spool.Store].
func (s *Store) AdoptExpired(ctx context.Context, inc spool.Incarnation) (int, error) {
	if err := s.call(ctx, "AdoptExpired", inc); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for other, i := range s.incarnations {
		if other != inc && !i.fenced && i.expires.Before(s.Now()) {
			n += s.adopt(other)
		}
	}
	return n, nil
}

// HandOver is part of [spool.Store].
func (s *Store) HandOver(ctx context.Context, inc spool.Incarnation) (int, error) {
	if err := s.call(ctx, "HandOver", inc); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.adopt(inc), nil
}

// adopt fences an incarnation and gives each of its unfinished messages a row that is due.
func (s *Store) adopt(inc spool.Incarnation) int {
	i := s.incarnations[inc]
	if i == nil || i.fenced {
		return 0
	}
	i.fenced = true
	n := 0
	for id, m := range s.messages {
		if _, ended := s.outcomes[id]; ended || !s.ownedBy(m, inc) {
			continue
		}
		n++
		if s.waits[id] == nil {
			s.waits[id] = map[string]*wait{}
		}
		for _, w := range s.waits[id] {
			w.owner = 0
		}
		if s.waits[id][spool.DestinationAll] == nil {
			s.waits[id][spool.DestinationAll] = &wait{Wait: spool.Wait{
				WaitKey: spool.WaitKey{Message: id, Destination: spool.DestinationAll}, Reason: spool.WaitAll,
				NextAt: s.Now(),
			}}
		}
	}
	return n
}

// ownedBy tells whether an incarnation has a message in memory: its waiting rows say so, or, where it has none, its row.
func (s *Store) ownedBy(m *spool.Message, inc spool.Incarnation) bool {
	if len(s.waits[m.ID]) == 0 {
		return m.Owner == inc
	}
	for _, w := range s.waits[m.ID] {
		return w.owner == inc
	}
	return false
}

// Claim is part of [spool.Store].
func (s *Store) Claim(ctx context.Context, inc spool.Incarnation, limits spool.ClaimLimits) ([]*spool.Stored, error) {
	if err := s.call(ctx, "Claim", inc); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var due []*wait
	soon := s.Now().Add(limits.Ahead)
	for _, rows := range s.waits {
		for _, w := range rows {
			if w.owner == 0 && !w.NextAt.After(soon) && !slices.Contains(limits.Without, w.Destination) && !s.suspended(w, limits) {
				due = append(due, w)
			}
		}
	}
	sort.Slice(due, func(i, j int) bool { return due[i].NextAt.Before(due[j].NextAt) })
	var claimed []*spool.Stored
	count := map[string]int{}
	for _, w := range due {
		if len(claimed) == limits.Messages {
			break
		}
		if w.owner != 0 || count[w.Destination] == limits.PerDestination && w.Destination != spool.DestinationAll {
			continue
		}
		count[w.Destination]++
		for _, r := range s.waits[w.Message] {
			r.owner = inc
		}
		claimed = append(claimed, s.load(w.Message))
	}
	return claimed, nil
}

func (s *Store) load(id spool.ID) *spool.Stored {
	st := &spool.Stored{Message: *s.messages[id]}
	st.Attempts = append(st.Attempts, s.attempts[id]...)
	for _, w := range s.waits[id] {
		st.Waits = append(st.Waits, w.Wait)
	}
	return st
}

// ReadContent is part of [spool.Store].
func (s *Store) ReadContent(ctx context.Context, id spool.ID, offset, length int64, take func(piece []byte) error) error {
	if err := s.call(ctx, "ReadContent", 0); err != nil {
		return err
	}
	content, ok := s.content(id)
	s.mu.Unlock()
	if !ok {
		return spool.ErrNotFound
	}
	content = content[min(offset, int64(len(content))):]
	if length > 0 {
		content = content[:min(length, int64(len(content)))]
	}
	return take(content)
}

func (s *Store) content(id spool.ID) ([]byte, bool) {
	m := s.messages[id]
	if m == nil {
		return nil, false
	}
	if m.Content != nil {
		return m.Content, true
	}
	var content []byte
	for seq := int32(0); ; seq++ {
		c, ok := s.chunks[id][seq]
		if !ok {
			return content, true
		}
		content = append(content, c.Data...)
	}
}

// Peers is part of [spool.Store].
func (s *Store) Peers(ctx context.Context, inc spool.Incarnation) ([]string, error) {
	if err := s.call(ctx, "Peers", inc); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var peers []string
	for other, i := range s.incarnations {
		if other != inc && !i.fenced && i.address != "" {
			peers = append(peers, i.address)
		}
	}
	sort.Strings(peers)
	return peers, nil
}

// Order is a command of an operator; it is told by its number.
func (s *Store) Order(id spool.ID, verb spool.Verb) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, spool.Command{ID: int64(len(s.commands) + 1), Message: id, Verb: verb, By: "test"})
	return int64(len(s.commands))
}

// CommandResult tells what came of a command; empty where it is not done.
func (s *Store) CommandResult(command int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[command]
}

// OpenCommands is part of [spool.Store].
func (s *Store) OpenCommands(ctx context.Context, inc spool.Incarnation, limit int) ([]spool.Command, []*spool.Stored, error) {
	if err := s.call(ctx, "OpenCommands", inc); err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	var open []spool.Command
	var claimed []*spool.Stored
	for _, c := range s.commands {
		if _, ended := s.outcomes[c.Message]; ended && s.done[c.ID] == "" {
			s.done[c.ID] = "it has ended"
		}
		if s.done[c.ID] != "" || len(open) == limit {
			continue
		}
		open = append(open, c)
		free := len(s.waits[c.Message]) > 0
		for _, w := range s.waits[c.Message] {
			free = free && w.owner == 0
		}
		if !free {
			continue
		}
		for _, w := range s.waits[c.Message] {
			w.owner = inc
		}
		claimed = append(claimed, s.load(c.Message))
	}
	return open, claimed, nil
}

// HearCommands is part of [spool.Store]. It hears nothing: commands are found by looking.
func (s *Store) HearCommands(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// Usage is part of [spool.Store]. Bytes are those of content alone.
func (s *Store) Usage(_ context.Context, waitingUpTo int) (spool.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var u spool.Usage
	for _, rows := range s.waits {
		u.Waiting += len(rows)
	}
	for _, m := range s.messages {
		u.Bytes += m.Size
	}
	u.Waiting = min(u.Waiting, waitingUpTo)
	return u, nil
}

// Maintain is part of [spool.Store].
func (s *Store) Maintain(ctx context.Context, inc spool.Incarnation) error {
	if err := s.call(ctx, "Maintain", inc); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}
