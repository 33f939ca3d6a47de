package deliver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// returned is what of the original message a notification gives back.
type returned struct {
	header []byte // the header section
	full   []byte // the whole message; nil where only the header section is to be given back
}

// returned reads what is to be given back: the header section, or all of a message whose sender asked for it and that
// is small enough (RFC 3461, section 4.3). A notification without it is better than none: trouble in reading is logged.
func (d *Deliverer) returned(ctx context.Context, a *attempt) returned {
	content, err := a.open(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "notification returns nothing of the message", "message_id", a.MessageID, "error", err)
		return returned{}
	}
	defer func() { _ = content.Close() }() // only read
	if a.Envelope.GetDsnReturn() == mailv1.DsnReturn_DSN_RETURN_FULL && a.Size <= int64(d.cfg.ReturnedMessage) {
		// Edits may add to the size, so this is bounded apart.
		limit := int64(d.cfg.ReturnedMessage) + 64<<10
		all, err := io.ReadAll(io.LimitReader(content, limit))
		header, ok := headerOf(bytes.NewReader(all), int(d.cfg.ReturnedHeaders))
		if err == nil && int64(len(all)) < limit && wholeLines(all) {
			return returned{header: header, full: all}
		}
		if ok {
			return returned{header: header}
		}
	}
	header, ok := headerOf(content, int(d.cfg.ReturnedHeaders))
	if !ok {
		d.log.WarnContext(ctx, "notification returns nothing of the message", "message_id", a.MessageID, "error", "the header section can't be read")
	}
	return returned{header: header}
}

// wholeLines tells whether content has no bare CR, bare LF or NUL and ends its last line.
func wholeLines(b []byte) bool {
	if len(b) > 0 && !bytes.HasSuffix(b, []byte("\r\n")) || bytes.IndexByte(b, 0) >= 0 {
		return false
	}
	pairs := bytes.Count(b, []byte("\r\n"))
	return bytes.Count(b, []byte("\r")) == pairs && bytes.Count(b, []byte("\n")) == pairs
}

// headerOf reads a header section, without the empty line, cut at the limit before a line that would pass it. It is
// false where nothing could be read.
func headerOf(r io.Reader, limit int) ([]byte, bool) {
	in := bufio.NewReaderSize(r, 4096)
	var out, line []byte
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(out)+len(line) <= limit:
			continue
		case len(out)+len(line) > limit, err == nil && blank(line):
			return out, true
		}
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 {
			// A bare CR would be one in our own message (promise P7).
			out = append(out, bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r"), []byte(" ")), []byte{0}, []byte(" "))...)
			out = append(out, "\r\n"...)
		}
		if err != nil {
			return out, errors.Is(err, io.EOF)
		}
		line = line[:0]
	}
}
