package parser

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// reader reads one message.
type reader struct {
	limits  Limits
	out     *mailv1.ParsedMessage
	noted   map[string]int // how many defects of each kind were met
	repeats int            // how many defects were kept that are not the first of their kind
	now     func() time.Time
	until   time.Time // when the time is up
	late    bool      // whether it was

	texts    [2]candidates // of plain text and of HTML
	found    *node         // the first report
	fieldBuf []field       // of the section under way
	body     body          // of the leaf under way
	extract  *extraction   // the part that is wanted in full, if one is
	failure  error         // a fault of our own
	keepAll  bool          // whether all bodies are kept, for tests

	// What was used of the limits.
	parts, headerCount, headerBytes, wordCount, decodedBytes int
	addressCount, paramCount, paramBytes                     int
}

// candidates are the bodies of a type that may be the text of the message.
type candidates struct {
	shown []*node // those that are no attachments
	named *node   // the first that has a file name but is shown in place; it counts where there is no other
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

func newReader(limits Limits) *reader {
	return &reader{limits: limits, out: &mailv1.ParsedMessage{}, noted: map[string]int{}, now: time.Now}
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
	r.out.Parts = []*mailv1.Part{root.part}
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
	s := &source{data: data, nested: nested, maxLine: int(r.limits.LineBytes), expired: r.expired}
	s.odd = func(kind, part string, at int, line []byte) {
		if r.noted[kind] == 0 {
			r.defect(kind, severe, r.place(s, part, at), "%s", excerpt(line))
		}
	}
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
