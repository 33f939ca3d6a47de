package parser

import (
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// reader reads one message.
type reader struct {
	limits  Limits
	result  *result
	out     *mailv1.ParsedMessage // of the result
	noted   map[string]int        // how many defects of each kind were met
	repeats int                   // how many defects were kept that are not the first of their kind
	now     func() time.Time
	until   time.Time // when the time is up
	late    bool      // whether it was

	texts    [2]candidates // of plain text and of HTML
	mailbox  addressReader // of the field under way
	found    *node         // the first report
	nodes    []node        // those that are still to be used
	fieldBuf []field       // of the section under way
	scratch  []byte        // room for a string while it is made
	strs     strs          // what the strings of the result are made of
	body     body          // of the leaf under way
	extract  *extraction   // the part that is wanted in full, if one is
	failure  error         // a fault of our own
	keepAll  bool          // whether all bodies are kept, for tests

	// What was used of the limits.
	parts, headerCount, headerBytes, wordCount, decodedBytes int
	addressCount, paramCount, paramBytes                     int

	// Of what the result is made, and the nodes of most messages.
	partRooms    slab[partRoom]
	hopRooms     slab[hopRoom]
	addressRooms slab[mailv1.Address]
	fewNodes     [6]node
}

// result is a ParsedMessage with what nearly every one has.
type result struct {
	message mailv1.ParsedMessage
	root    partRoom
	roots   [1]*mailv1.Part
}

// partRoom is a part with its hash.
type partRoom struct {
	part mailv1.Part
	sum  [sha256.Size]byte
}

// slab makes values that lie in one piece of memory, a few at once.
type slab[T any] struct{ free []T }

func (s *slab[T]) next() *T {
	if len(s.free) == 0 {
		s.free = make([]T, 4)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// candidates are the bodies of a type that may be the text of the message.
type candidates struct {
	shown []*node // those that are no attachments
	named *node   // the first that has a file name but is shown in place; it counts where there is no other
	few   [2]*node
}

// extraction is a part whose decoded body goes to a writer.
type extraction struct {
	path  string
	out   io.Writer
	found bool
	err   error
}

func (e *extraction) write(p []byte) {
	if e.err == nil {
		_, e.err = e.out.Write(p)
	}
}

// readers are those that have read a message and may read another: what they hold for themselves is used again.
var readers = sync.Pool{New: func() any { return &reader{noted: map[string]int{}} }}

func newReader(limits Limits) *reader {
	r := readers.Get().(*reader)
	r.begin(limits)
	return r
}

// begin makes the reader ready for a message.
func (r *reader) begin(limits Limits) {
	r.limits, r.now, r.result = limits, time.Now, &result{}
	r.out, r.nodes = &r.result.message, r.fewNodes[:]
	for i := range r.texts {
		r.texts[i].shown = r.texts[i].few[:0]
	}
}

// What a reader holds for the next message is bounded, and nothing of the last.
const (
	maxHeldFields = 500
	maxHeldBytes  = 256 << 10
)

// release lets another message have the reader.
func (r *reader) release() {
	clear(r.noted)
	next := reader{noted: r.noted}
	if fields := r.fieldBuf[:cap(r.fieldBuf)]; len(fields) <= maxHeldFields {
		clear(fields)
		next.fieldBuf = fields[:0]
	}
	if cap(r.scratch) <= maxHeldBytes {
		next.scratch = r.scratch[:0]
	}
	b := &r.body
	next.body = body{hash: b.hash, tap: b.tap, sink: b.sink, lines: lineDecoder{rest: b.lines.rest[:0]}}
	if cap(b.kept) <= maxHeldBytes {
		next.body.kept = b.kept[:0]
	}
	*r = next
	readers.Put(r)
}

// read reads the message. The error is that of the source's stream.
func (r *reader) read(s *source) error {
	defer func() {
		if cause := recover(); cause != nil {
			r.failed(s, cause)
		}
	}()
	r.until = r.now().Add(r.limits.Time)
	root := r.newRoot()
	r.entity(s, 0, root)
	r.out.Size = int64(s.end())
	r.result.roots[0] = root.part
	r.out.Parts = r.result.roots[:]
	r.out.Headers, root.part.Headers = root.part.Headers, nil
	r.bodies(root)
	r.report()
	r.sortDefects()
	r.fit()
	return s.err
}

// failed makes the result after a fault of our own: a message that nothing can be said about goes on by policy, and takes no
// others with it (P5).
func (r *reader) failed(s *source, cause any) {
	r.failure = fmt.Errorf("the parser failed: %v at %s", cause, faultAt())
	r.out = &mailv1.ParsedMessage{
		Size:  int64(s.end()),
		Parts: []*mailv1.Part{{Path: "1", Type: plainType, Encoding: "7bit", Unparsed: true}},
		Defects: []*mailv1.Defect{{
			Kind: "internal_error", Severity: severe, Offset: unknownOffset, Detail: cut(clean(r.failure.Error()), maxDetail),
		}},
	}
}

// faultAt tells where in this package the panic came up that is being recovered from.
func faultAt() string {
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	for panicked := false; ; {
		frame, more := frames.Next()
		if panicked && strings.Contains(frame.Function, "/parser.") {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		panicked = panicked || frame.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}

// source makes a source for octets in memory.
func (r *reader) source(data []byte, nested bool) *source {
	s := &source{data: data, nested: nested, maxLine: int(r.limits.LineBytes), reader: r}
	s.bounds, s.taps = s.room.bounds[:0], s.room.taps[:0]
	return s
}

// stream makes a source for a stream.
func (r *reader) stream(in io.Reader) *source {
	s := r.source(nil, false)
	s.stream = in
	return s
}

// expired tells whether the time is up, and notes it.
func (r *reader) expired() bool {
	if !r.late && r.now().After(r.until) {
		r.late = true
		r.defect("time_limit", severe, place{offset: unknownOffset}, "more than %s; the rest was not looked at", r.limits.Time)
	}
	return r.late
}
