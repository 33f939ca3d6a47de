package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rohrpost/rohrpost/gateway/wire"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// maxLine is the longest line of content, without its CRLF. RFC 5322 says 998, but mail with lines of many thousand is
// common, and it passes unchanged (cases G2, G3).
const maxLine = 64 << 10

var (
	errLoop      = smtpreply.New(554, "5.4.6", "Too many Received fields: the message is looping")
	errBrokenOff = smtpreply.New(451, "4.4.2", "The session ended within the message") // nobody is there to read it
)

// receive takes content from src and returns the reply to it, which is never nil.
func (s *session) receive(tx *transaction, src io.Reader) error {
	content := wire.NewContent(src, wire.ContentOptions{
		Normalize: s.set.cfg.BareNewline == BareNewlineNormalize,
		MaxLine:   maxLine,
		MaxSize:   int64(s.port.limits.MaxSize),
	})
	held := &loan{m: s.g.memory}
	defer held.end()
	head, whole, err := readHead(content, tx.sizeHint, func(octets int) error { return s.grow(held, octets) })
	if errors.Is(err, wire.ErrReset) {
		return refusal(err) // read by nobody
	}
	tx.answered = true
	scan := new(headerScan)
	scan.feed(head)
	ctx, span := tx.startSpan(s.ctx, scan.traceparent)
	id := mintID(s.g.spool.Now())
	if span.IsRecording() {
		span.SetAttributes(attribute.String("rohrpost.message.id", id.String()))
	}
	switch {
	case err != nil:
	case scan.looping():
		err = errLoop
	default:
		sub := s.submission(tx, id)
		if whole {
			sub.Content = head
			err = s.submitWhole(ctx, sub)
		} else {
			if err = s.grow(held, streamMemory); err == nil {
				err = s.submitStream(ctx, sub, scan, head, content)
			}
		}
	}
	s.count(CountBytes, content.Size(), s.userName(), tx.envelope.GetSender())
	err = contentRefusal(err)
	endSpan(span, content.Size(), err)
	s.logEnd(ctx, tx, id, content.Size(), err)
	if err != nil {
		return refusal(err)
	}
	return queued(id.String())
}

// streamMemory is what a streamed message holds beside its head: a chunk that is filled, and one on its way to the spool.
const streamMemory = 2 * InlineLimit

// grow waits for room in memory.
func (s *session) grow(held *loan, octets int) error {
	if held.tryGrow(int64(octets)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.set.cfg.Timeouts.Memory)
	defer cancel()
	return held.grow(ctx, int64(octets))
}

// readHead reads up to InlineLimit octets and tells whether that is all. It asks grow before it takes memory.
func readHead(content io.Reader, sizeHint int64, grow func(octets int) error) (head []byte, whole bool, err error) {
	size := int(min(max(sizeHint, 4<<10), InlineLimit) + 1)
	if err := grow(size); err != nil {
		return nil, false, err
	}
	head = make([]byte, 0, size)
	for {
		if len(head) == cap(head) {
			if len(head) > InlineLimit {
				return head, false, nil
			}
			more := min(len(head), InlineLimit+1-len(head))
			if err := grow(more); err != nil {
				return head, false, err
			}
			head = slices.Grow(head, more)
		}
		n, err := content.Read(head[len(head):min(cap(head), InlineLimit+1)])
		head = head[:len(head)+n]
		switch {
		case errors.Is(err, io.EOF):
			return head, true, nil
		case err != nil:
			return head, false, err
		case len(head) > InlineLimit:
			return head, false, nil
		}
	}
}

func (s *session) submission(tx *transaction, id uuid.UUID) *Submission {
	now := s.g.spool.Now()
	tx.envelope.Reception.ReceivedAt = timestamppb.New(now)
	return &Submission{
		ID:       id,
		Envelope: tx.envelope,
		Edits:    []*mailv1.Edit{receivedField(id.String(), tx.envelope, s.addr.Addr(), now)},
		SizeHint: tx.sizeHint,
		Deadline: s.set.cfg.Timeouts.Submit,
	}
}

func (s *session) submitWhole(ctx context.Context, sub *Submission) error {
	ctx, cancel := context.WithTimeout(ctx, sub.Deadline)
	defer cancel()
	_, err := s.g.spool.Submit(ctx, sub)
	return err
}

// submitStream hands content over while it arrives. The time for the spool's answer counts from its end.
func (s *session) submitStream(ctx context.Context, sub *Submission, scan *headerScan, head []byte, rest io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer := time.AfterFunc(s.set.cfg.Timeouts.DataTotal+s.set.cfg.Timeouts.Submit, func() { cancel(context.DeadlineExceeded) })
	defer answer.Stop()
	sub.Stream = &stream{
		src:   io.MultiReader(bytes.NewReader(head), rest),
		seen:  len(head),
		scan:  scan,
		ended: func() { answer.Reset(s.set.cfg.Timeouts.Submit) },
	}
	sub.Deadline = s.set.cfg.Timeouts.DataTotal + s.set.cfg.Timeouts.Submit
	_, err := s.g.spool.Submit(ctx, sub)
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("waiting for the spool: %w", context.Cause(ctx))
	}
	return err
}

// stream is the content of a large message, on its way from the client to the spool.
type stream struct {
	src   io.Reader
	seen  int // octets of the head, which has been scanned
	scan  *headerScan
	ended func()
}

// Read implements io.Reader.
func (r *stream) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	skip := min(n, r.seen)
	r.seen -= skip
	r.scan.feed(p[skip:n])
	if r.scan.looping() {
		return 0, errLoop
	}
	if errors.Is(err, io.EOF) {
		r.ended()
	}
	return n, err
}

// contentRefusal says what a fault of content is to the client.
func contentRefusal(err error) error {
	var fault *wire.ContentError
	if errors.Is(err, wire.ErrEnded) {
		return errBrokenOff.Because(err)
	}
	if !errors.As(err, &fault) {
		return openRefusal(err)
	}
	switch fault.Kind {
	case wire.OverMaxSize:
		return smtpreply.New(552, "5.3.4", "Message too big").Because(err) // RFC 1870, section 6.3
	case wire.LongLine:
		return smtpreply.New(554, "5.6.0", fmt.Sprintf("Line longer than %d octets at octet %d", maxLine, fault.Offset)).Because(err)
	case wire.BareCR, wire.BareLF: // RFC 5321, section 2.3.8
	}
	return smtpreply.New(554, "5.6.0",
		fmt.Sprintf("%s at octet %d: lines must end with CRLF", fault.Kind, fault.Offset)).Because(err)
}

// openRefusal makes a reply with code 421 one with 451: a filter may say so of a message, but to the client it would mean that
// we close the connection, which we don't. (RFC 5321, section 3.8.)
func openRefusal(err error) error {
	var reply *smtpreply.Error
	if !errors.As(err, &reply) || reply.Reply().GetCode() != 421 {
		return err
	}
	open := &mailv1.Reply{Code: 451, EnhancedCode: reply.Reply().GetEnhancedCode(), Text: reply.Reply().GetText()}
	return smtpreply.FromReply(open).Because(err)
}

// logEnd writes the one line about a message.
func (s *session) logEnd(ctx context.Context, tx *transaction, id uuid.UUID, size int64, err error) {
	level, message := slog.LevelInfo, "message accepted"
	reply := smtpreply.From(err)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrEnded):
		message = "message broken off" // no fault of ours
	case reply.Temporary():
		level, message = slog.LevelWarn, "message refused for now"
	default:
		message = "message refused"
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("message_id", id.String()), slog.Int64("size", size), slog.Int("recipients", len(tx.envelope.GetRecipients())),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", reply))
	}
	s.log.LogAttrs(ctx, level, message, attrs...)
}
