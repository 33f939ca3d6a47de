package deliver

import (
	"context"
	"errors"
	"fmt"
	"io"
)

var (
	// errContent marks trouble with reading the content.
	errContent = errors.New("the content can't be read")
	errLength  = errors.New("it has not the length it should have")
)

// open opens the content with the edits applied. Reading fails, with errContent in the error's chain, also where the
// content has another length than the task says: content that was cut on the way must not be delivered (case A6).
func (a *attempt) open(ctx context.Context) (io.ReadCloser, error) {
	if a.Content == nil {
		return nil, fmt.Errorf("%w: the task has none", errContent)
	}
	raw, err := a.Content(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errContent, err)
	}
	edited, err := Apply(&exactReader{r: raw, left: a.Size}, a.Edits)
	if err != nil {
		_ = raw.Close() // nothing was read
		return nil, fmt.Errorf("%w: %w", errContent, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{edited, raw}, nil
}

// spoil sets the results where the content could not be read. That is a failure of the worker, but for an edit that it
// does not know: then the message waits for a worker that does.
func (a *attempt) spoil(targets []*target, err error) {
	if errors.Is(err, ErrEdit) {
		all(targets, temporary, newReply(451, "4.3.0", "The message can't be prepared for delivery yet"))
		return
	}
	a.failure = err
	all(targets, temporary, newReply(451, "4.3.0", "The content could not be read"))
}

// exactReader fails where the content does not have exactly the octets it should have.
type exactReader struct {
	r    io.Reader
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	switch {
	case e.left < 0, errors.Is(err, io.EOF) && e.left != 0:
		return 0, fmt.Errorf("%w: %w", errContent, errLength)
	case err != nil && !errors.Is(err, io.EOF):
		return n, fmt.Errorf("%w: %w", errContent, err)
	default:
		return n, err
	}
}
