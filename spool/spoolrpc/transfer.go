package spoolrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

const (
	// maxUploads is how many messages may be begun and not ended on one stream.
	maxUploads = 64
	// maxRefused is how many refused uploads a stream remembers.
	maxRefused = 4 * maxUploads
	// maxChunk is how large a piece of content may be, in octets.
	maxChunk = 256 << 10
	// defaultDeadline is how long a client waits where the gateway does not say.
	defaultDeadline = 60 * time.Second
)

// transfer is a message whose content is arriving.
type transfer struct {
	sub spool.Submission
	// content holds what arrived while it is at most spool.InlineLimit octets; after that it stands in upload.
	content []byte
	upload  upload
	size    int64
	hint    int64 // what the client said that size will be; 0 where it did not
}

func (t *transfer) abort() {
	if t.upload != nil {
		t.upload.Abort()
	}
}

// frames handles frames in order. An error ends the stream; a mistake in a frame only refuses its message, with 451: the
// client is not to blame for it.
func (st *submitStream) frames(ctx context.Context, frames []*spoolv1.SubmitFrame) error {
	for _, frame := range frames {
		var err error
		switch kind := frame.GetKind().(type) {
		case *spoolv1.SubmitFrame_Message:
			err = st.message(ctx, kind.Message)
		case *spoolv1.SubmitFrame_Begin:
			err = st.begin(ctx, kind.Begin)
		case *spoolv1.SubmitFrame_Chunk:
			err = st.chunk(ctx, kind.Chunk)
		case *spoolv1.SubmitFrame_End:
			err = st.end(ctx, kind.End)
		case *spoolv1.SubmitFrame_Abort:
			err = st.abortMessage(ctx, kind.Abort)
		default: // a repeated hello, or a kind of a later version: ignored
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *submitStream) message(ctx context.Context, msg *spoolv1.SubmitMessage) error {
	sub, err := submission(msg.GetBegin())
	if err != nil {
		return st.refuseBegin(ctx, sub, msg.GetBegin(), err)
	}
	if _, double := st.uploads[sub.ID]; double {
		return st.fail(ctx, sub.ID, errors.New("message for an upload that is under way"))
	}
	if len(msg.GetContent()) > spool.InlineLimit {
		return st.refuse(ctx, sub.ID.String(), fmt.Errorf("content of %d octets in one frame", len(msg.GetContent())))
	}
	sub.Content = inline(msg.GetContent())
	return st.submit(ctx, sub, nil)
}

func (st *submitStream) begin(ctx context.Context, begin *spoolv1.SubmitBegin) error {
	sub, err := submission(begin)
	if err != nil {
		return st.refuseBegin(ctx, sub, begin, err)
	}
	if _, double := st.uploads[sub.ID]; double {
		return st.fail(ctx, sub.ID, errors.New("begin for an upload that is under way"))
	}
	if len(st.uploads) >= maxUploads {
		st.remember(sub.ID)
		return st.refuse(ctx, sub.ID.String(), fmt.Errorf("more than %d uploads on one stream", maxUploads))
	}
	delete(st.refused, sub.ID) // a second try under the same id
	st.uploads[sub.ID] = &transfer{sub: sub, hint: max(begin.GetSizeHint(), 0)}
	return nil
}

// refuseBegin refuses a message for a mistake in its description. Its content, if any follows, is passed over.
func (st *submitStream) refuseBegin(ctx context.Context, sub spool.Submission, begin *spoolv1.SubmitBegin, err error) error {
	if _, open := st.uploads[sub.ID]; open {
		return st.fail(ctx, sub.ID, err)
	}
	if sub.ID != uuid.Nil {
		st.remember(sub.ID)
	}
	return st.refuse(ctx, shownID(begin.GetId()), err)
}

func (st *submitStream) chunk(ctx context.Context, chunk *spoolv1.SubmitChunk) error {
	id, t, err := st.find(ctx, chunk.GetId())
	if t == nil {
		return err
	}
	data := chunk.GetData()
	if len(data) > maxChunk {
		return st.fail(ctx, id, fmt.Errorf("chunk of %d octets", len(data)))
	}
	if err := st.store(ctx, t, data); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return st.fail(ctx, id, err)
	}
	return nil
}

// store keeps the next piece of content, and waits as long as the spool has no room for it. No other frame of the stream
// is handled meanwhile: larger messages have a stream of their own.
func (st *submitStream) store(ctx context.Context, t *transfer, data []byte) error {
	ctx, cancel := context.WithDeadline(ctx, t.sub.Deadline)
	defer cancel()
	t.size += int64(len(data))
	if t.size <= spool.InlineLimit {
		if t.content == nil {
			t.content = slices.Clip(data)
		} else {
			t.content = append(t.content, data...)
		}
		return nil
	}
	if t.upload == nil {
		var err error
		if t.upload, err = st.engine.NewUpload(ctx, t.sub.ID, t.hint); err != nil {
			return err
		}
		if err := t.upload.Write(ctx, t.content); err != nil {
			return err
		}
		t.content = nil
	}
	return t.upload.Write(ctx, data)
}

func (st *submitStream) end(ctx context.Context, end *spoolv1.SubmitEnd) error {
	id, t, err := st.find(ctx, end.GetId())
	if t == nil {
		delete(st.refused, id)
		return err
	}
	if end.GetSize() != t.size {
		err := st.fail(ctx, id, fmt.Errorf("content of %d octets where %d were sent", t.size, end.GetSize()))
		delete(st.refused, id)
		return err
	}
	delete(st.uploads, id)
	if t.upload == nil {
		t.sub.Content = inline(t.content)
	}
	if err := st.submit(ctx, t.sub, t.upload); err != nil {
		t.abort()
		return err
	}
	return nil
}

var errAborted = smtpreply.New(451, "4.4.2", "Message taken back")

func (st *submitStream) abortMessage(ctx context.Context, abort *spoolv1.SubmitAbort) error {
	id, err := parseID(abort.GetId())
	if err != nil {
		return st.refuse(ctx, shownID(abort.GetId()), err)
	}
	if _, open := st.uploads[id]; open {
		err := st.fail(ctx, id, errAborted)
		delete(st.refused, id)
		return err
	}
	if _, known := st.refused[id]; known {
		delete(st.refused, id)
		return nil
	}
	// It may have come on an earlier stream. Where it was not answered yet, its done is called.
	st.engine.Abort(id)
	return nil
}

// find returns the upload that a frame is about. Where there is none, it has answered what is to be answered.
func (st *submitStream) find(ctx context.Context, text string) (spool.ID, *transfer, error) {
	id, err := parseID(text)
	if err != nil {
		return id, nil, st.refuse(ctx, shownID(text), err)
	}
	if t := st.uploads[id]; t != nil {
		return id, t, nil
	}
	if _, known := st.refused[id]; known {
		return id, nil, nil
	}
	st.remember(id)
	return id, nil, st.refuse(ctx, text, errors.New("content of a message that was not begun"))
}

// fail gives up an upload and refuses it.
func (st *submitStream) fail(ctx context.Context, id spool.ID, err error) error {
	if t := st.uploads[id]; t != nil {
		t.abort()
		delete(st.uploads, id)
	}
	st.remember(id)
	return st.refuse(ctx, id.String(), err)
}

func (st *submitStream) remember(id spool.ID) {
	if len(st.refused) >= maxRefused {
		// A gateway that never ends what was refused gets a few refusals twice.
		clear(st.refused)
	}
	st.refused[id] = struct{}{}
}

// abandon gives up the uploads that have not ended.
func (st *submitStream) abandon() {
	for id, t := range st.uploads {
		t.abort()
		delete(st.uploads, id)
	}
}

// submission checks the description of a message. With an error, the id is set if at least that could be read.
func submission(begin *spoolv1.SubmitBegin) (spool.Submission, error) {
	id, err := parseID(begin.GetId())
	if err != nil {
		return spool.Submission{}, err
	}
	sub := spool.Submission{
		ID: id, Envelope: begin.GetEnvelope(), Edits: begin.GetEdits(), Trace: begin.GetTrace(), Again: begin.GetAgain(),
	}
	recipients := sub.Envelope.GetRecipients()
	if len(recipients) == 0 {
		return sub, errors.New("envelope without recipients")
	}
	for i, rcpt := range recipients {
		if rcpt.GetAddress() == "" {
			return sub, fmt.Errorf("recipient %d without an address", i)
		}
	}
	wait := begin.GetDeadline().AsDuration()
	if wait < 0 {
		return sub, context.DeadlineExceeded
	}
	if wait == 0 {
		wait = defaultDeadline
	}
	sub.Deadline = time.Now().Add(wait)
	return sub, nil
}

// parseID reads a UUIDv7 in canonical text (RFC 9562, sections 4 and 5.7).
func parseID(text string) (spool.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return uuid.Nil, fmt.Errorf("id %q is not a UUIDv7 in canonical text", shownID(text))
	}
	return id, nil
}

// shownID bounds an id that may be anything.
func shownID(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// inline tells empty content from content that stands elsewhere.
func inline(content []byte) []byte {
	if content == nil {
		return []byte{}
	}
	return content
}
