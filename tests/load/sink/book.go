package sink

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// Stats is what has arrived at a sink. Messages are counted once for each recipient.
type Stats struct {
	Sessions   int64            `json:"sessions"`   // connections taken
	Arrivals   int64            `json:"arrivals"`   // contents that came in whole
	Accepted   int64            `json:"accepted"`   // of them answered by 2xx, whether the reply got through or not
	Distinct   int64            `json:"distinct"`   // accepted, counted once for each load id and recipient
	Duplicates int64            `json:"duplicates"` // accepted again
	Reports    int64            `json:"reports"`    // notifications
	Strange    int64            `json:"strange"`    // accepted without a load id
	Octets     int64            `json:"octets"`     // of content
	Faults     map[string]int64 `json:"faults"`     // what was wrong with contents
	First      time.Time        `json:"first"`      // the first arrival
	Last       time.Time        `json:"last"`       // the last arrival
}

// Since is what has arrived after some earlier statistics of the same sink. First is not known then, and zero.
func (s Stats) Since(before Stats) Stats {
	s.Sessions -= before.Sessions
	s.Arrivals -= before.Arrivals
	s.Accepted -= before.Accepted
	s.Distinct -= before.Distinct
	s.Duplicates -= before.Duplicates
	s.Reports -= before.Reports
	s.Strange -= before.Strange
	s.Octets -= before.Octets
	if before.Arrivals > 0 {
		s.First = time.Time{}
	}
	faults := map[string]int64{}
	for fault, n := range s.Faults {
		if n -= before.Faults[fault]; n > 0 {
			faults[fault] = n
		}
	}
	s.Faults = faults
	return s
}

// book keeps count.
type book struct {
	ledger *ledger.Writer
	keep   string
	seeds  [2]maphash.Seed

	mu      sync.Mutex
	stats   Stats
	seen    map[key]struct{}
	waiting []waiter
}

// key is a hash of load id and recipient: 128 bits are enough to tell them apart.
type key [2]uint64

func (b *book) key(pair string) key {
	return key{maphash.String(b.seeds[0], pair), maphash.String(b.seeds[1], pair)}
}

type waiter struct {
	n    int64
	done chan struct{}
}

func newBook(l *ledger.Writer, keep string) *book {
	return &book{
		ledger: l, keep: keep, seen: map[key]struct{}{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, stats: Stats{Faults: map[string]int64{}},
	}
}

// arrival is a content that came in whole.
type arrival struct {
	protocol string
	sender   string
	content  []byte
	wireErr  string // what was wrong with it on the wire
	id       string
	report   bool
	fault    string
	raw      string
	at       time.Time
}

var receivedID = regexp.MustCompile(`\sid ([0-9A-Za-z-]+)`)

// examine recognises a content and keeps it where asked.
func (b *book) examine(protocol, sender string, content []byte, wireErr string) *arrival {
	a := &arrival{protocol: protocol, sender: sender, content: content, wireErr: wireErr, at: time.Now()}
	id, err := mail.Check(content)
	a.id = id
	switch {
	case err != nil && id == "" && sender == "":
		a.id = mail.FindID(content)
		a.report = true
	case err != nil:
		a.fault = err.Error()
	}
	if wireErr != "" {
		a.fault = wireErr
	}
	if b.keep != "" {
		a.raw = b.write(content)
	}
	return a
}

// write keeps a content in a file of its own.
func (b *book) write(content []byte) string {
	file, err := os.CreateTemp(b.keep, "mail-*.eml")
	if err == nil {
		_, err = file.Write(content)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		b.fail(fmt.Errorf("keeping a content: %w", err))
		return ""
	}
	return filepath.Base(file.Name())
}

// fail counts a fault of the sink itself among those of contents, so that nobody overlooks it.
func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Faults["sink: "+err.Error()]++
}

// enter counts an arrival for one recipient and writes it down. sent is false where the script keeps the reply back.
func (b *book) enter(a *arrival, recipient string, reply int, sent bool) {
	fault := a.fault
	if err := mail.CheckFor(a.content, recipient); err != nil && fault == "" && !a.report && recipient != "" {
		fault = err.Error()
	}
	b.count(a, recipient, reply, fault)
	if b.ledger == nil {
		return
	}
	if !sent {
		reply = 0
	}
	err := b.ledger.Write(ledger.Arrival{
		ID: a.id, MessageID: messageID(a.content), Recipient: recipient, Sender: a.sender, Report: a.report, Protocol: a.protocol,
		Reply: reply, Fault: fault, Size: len(a.content), Raw: a.raw, Time: a.at,
	})
	if err != nil {
		b.fail(err)
	}
}

// messageID is the id in the first Received field. (RFC 5321, section 4.4.)
func messageID(content []byte) string {
	const name = "Received:"
	if len(content) < len(name) || !bytes.EqualFold(content[:len(name)], []byte(name)) {
		return ""
	}
	end := len(name)
	for { // to the end of the folded field
		i := bytes.Index(content[end:], []byte("\r\n"))
		if i < 0 {
			return ""
		}
		end += i + 2
		if end >= len(content) || content[end] != ' ' && content[end] != '\t' {
			break
		}
	}
	if m := receivedID.FindSubmatch(content[:end]); m != nil {
		return string(m[1])
	}
	return ""
}

func (b *book) count(a *arrival, recipient string, reply int, fault string) {
	key := b.key(ledger.Pair(a.id, recipient))
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.stats
	s.Arrivals++
	s.Octets += int64(len(a.content))
	s.Last = a.at
	if s.First.IsZero() {
		s.First = a.at
	}
	if fault != "" {
		s.Faults[fault]++
	}
	if reply/100 != 2 {
		return
	}
	s.Accepted++
	_, again := b.seen[key]
	switch {
	case a.report:
		s.Reports++
		return
	case a.id == "":
		s.Strange++
		return
	case again:
		s.Duplicates++
		return
	}
	b.seen[key] = struct{}{}
	s.Distinct++
	for i := 0; i < len(b.waiting); {
		if w := b.waiting[i]; s.Distinct >= w.n {
			close(w.done)
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			continue
		}
		i++
	}
}

// when returns what is closed once n distinct messages have been accepted.
func (b *book) when(n int64) <-chan struct{} {
	done := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stats.Distinct >= n {
		close(done)
	} else {
		b.waiting = append(b.waiting, waiter{n: n, done: done})
	}
	return done
}

// arrived counts which of some messages have been accepted.
func (b *book) arrived(pairs []string) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pair := range pairs {
		if _, there := b.seen[b.key(pair)]; there {
			n++
		}
	}
	return n
}

func (b *book) connected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Sessions++
}

func (b *book) read() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Faults = make(map[string]int64, len(b.stats.Faults))
	for fault, n := range b.stats.Faults {
		s.Faults[fault] = n
	}
	return s
}
