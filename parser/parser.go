// Package parser reads mail: it turns the octets of a message into a ParsedMessage.
//
// Content never makes it fail. What can be read is read, as the widespread mail clients would, and what is odd is noted
// as a defect. Work is bounded by [Limits] and takes time linear in the size of the content. The package keeps no
// state; all functions are safe for concurrent use.
//
// It obeys RFC 5322, 2045 to 2049, 2047, 2231, 6532, 3464 and 5965. docs/parser.md lists the defects.
package parser

import (
	"fmt"
	"io"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Parse reads a message. The result shares no memory with content, holds only valid UTF-8 and encodes to at most
// limits.ResultBytes octets. A limit of zero or less means its default.
func Parse(content []byte, limits Limits) *mailv1.ParsedMessage {
	r := newReader(limits.withDefaults())
	defer r.release()
	_ = r.read(r.source(content, false)) // what is in memory can be read
	return r.out
}

// ParseReader reads a message of size octets, or up to its end where size is negative, from a stream, with the same result
// as [Parse]. It holds what of it the result needs and about 200 KiB more, but encoded messages inside it in full, up to
// limits.DecodedBytes. The error is never about the content: it says that the stream failed or did not hold size octets; the
// result is then what could be read so far.
func ParseReader(stream io.Reader, size int64, limits Limits) (*mailv1.ParsedMessage, error) {
	r := newReader(limits.withDefaults())
	defer r.release()
	err := r.readStream(stream, size)
	if err == nil && size >= 0 {
		r.out.Size = size // also where the time was up before the end
	}
	return r.out, err
}

func (r *reader) readStream(stream io.Reader, size int64) error {
	if size >= 0 {
		stream = &exactReader{in: stream, left: size}
	}
	if err := r.read(r.stream(stream)); err != nil {
		return fmt.Errorf("reading the content: %w", err)
	}
	return nil
}

// exactReader reads so many octets and fails where there are fewer.
type exactReader struct {
	in   io.Reader
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n, err := e.in.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Extract reads a message as [ParseReader] does and writes the decoded body of one part to out, path being that of the
// result: "1" is a message without parts, "1.2" the second part of a multipart. A multipart and a message that is not encoded
// are written as they stand. found is whether there is such a part. The error is that of reading or writing.
func Extract(stream io.Reader, size int64, path string, out io.Writer, limits Limits) (found bool, err error) {
	r := newReader(limits.withDefaults())
	defer r.release()
	r.extract = &extraction{path: path, out: out}
	err = r.readStream(stream, size)
	if r.failure != nil {
		return false, r.failure
	}
	if r.extract.err != nil {
		err = fmt.Errorf("writing part %s: %w", path, r.extract.err)
	}
	return r.extract.found, err
}
