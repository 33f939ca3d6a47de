package deliver

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// remover is a reader that leaves out fields of the header section.
type remover struct {
	src      *bufio.Reader
	removals []*mailv1.RemoveHeader
	out      []byte // decided octets that have not been read yet
	field    []byte // octets of the present field while it is undecided
	verdict  judgement
	started  bool // whether any line has been seen
	midLine  bool // whether the last piece did not end its line
	body     bool // whether the header section is over
	err      error
}

func newRemover(src io.Reader, removals []*mailv1.RemoveHeader) *remover {
	return &remover{src: bufio.NewReaderSize(src, 4096), removals: removals}
}

// Read implements io.Reader.
func (r *remover) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.body {
			return r.src.Read(p)
		}
		r.piece()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// piece takes the next line of the header section, or the next part of a long one.
func (r *remover) piece() {
	r.out = r.out[:0]
	line, err := r.src.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
	}
	if err != nil {
		r.err = err
	}
	if !r.midLine {
		if len(line) == 0 {
			r.close()
			return
		}
		if blank(line) {
			r.close()
			r.out = append(r.out, line...)
			r.body = true
			return
		}
		if !r.started || (line[0] != ' ' && line[0] != '\t') {
			r.close()
			r.started, r.verdict, r.field = true, undecided, r.field[:0]
		}
	}
	r.midLine = len(line) > 0 && line[len(line)-1] != '\n'
	r.take(line)
	if r.err != nil {
		r.close()
	}
}

// take adds octets to the present field and decides about it where that is possible.
func (r *remover) take(line []byte) {
	switch r.verdict {
	case matches:
		return
	case differs:
		r.out = append(r.out, line...)
		return
	case undecided:
		known := len(r.field) > 0
		r.field = append(r.field, line...)
		// Lines of white space alone decide nothing; to look again at each would cost the square of their number.
		if !known || len(bytes.TrimSpace(line)) > 0 {
			r.verdict = judge(r.field, false, r.removals)
		}
		if r.verdict == undecided && len(r.field) > maxUndecided {
			r.verdict = r.giveUp()
		}
		r.flush()
	}
}

// giveUp decides about a field that has shown nothing clear for too long.
func (r *remover) giveUp() judgement {
	for _, c := range r.field {
		if c == ':' {
			return matches
		}
	}
	return differs // no field at all
}

// close decides about the present field at its end.
func (r *remover) close() {
	if r.verdict == undecided && len(r.field) > 0 {
		r.verdict = judge(r.field, true, r.removals)
		r.flush()
	}
}

// flush hands on, or drops, what was kept of a field that has been decided about.
func (r *remover) flush() {
	if r.verdict == differs {
		r.out = append(r.out, r.field...)
	}
	if r.verdict != undecided {
		r.field = r.field[:0]
	}
}

func blank(line []byte) bool { return string(line) == "\r\n" || string(line) == "\n" }
