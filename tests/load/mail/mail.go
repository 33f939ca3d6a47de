// Package mail makes the mails of a load test and recognises them again: each carries an id, unique among all runs, and
// the hash of its body, so that whoever meets it anywhere can tell which one it is and whether an octet was changed.
package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
)

// The header fields by which a mail is recognised.
const (
	HeaderID   = "X-Rohrload-Id"   // unique id of the message
	HeaderHash = "X-Rohrload-Hash" // SHA-256 of the body in hexadecimal digits, every line ended by CRLF
	HeaderFor  = "X-Rohrload-For"  // a recipient; one field for each
)

// Why a mail can't be recognised or is not what was sent.
var (
	ErrNoID   = errors.New("no " + HeaderID + " in the header")
	ErrNoHash = errors.New("no " + HeaderHash + " in the header")
	ErrHash   = errors.New("the body is not the one that was sent")
	ErrFor    = errors.New("a recipient to whom it was not sent")
)

// Mail makes messages of one kind. It is made once and may be used by many at once.
type Mail struct {
	header []byte // what follows our own fields: the rest of the header and the empty line
	body   []byte // shared by all messages of the kind
	state  []byte // the hash after body, where each message goes on with a last line of its own
	sum    []byte // the hash where it does not, in hexadecimal digits
	plain  bool   // made up: From, To and Subject are written for each message
	eight  bool   // it has octets over 127
}

// Sized returns a kind whose messages have about size octets, as one line of text after another. Below the header's own
// size it has the id line only. No two messages have the same body.
func Sized(size int) *Mail {
	const line = "The quick brown fox jumps over the lazy dog, again and again.\r\n"
	n := max(0, size-overhead)
	body := bytes.Repeat([]byte(line), n/len(line))
	if rest := n % len(line); rest > 2 {
		body = append(body, line[:rest-2]...)
		body = append(body, "\r\n"...)
	}
	h := sha256.New()
	h.Write(body)
	return &Mail{body: body, state: save(h), plain: true}
}

// overhead is what a sized message has besides its text: header fields and id line with an id and addresses of usual length.
const overhead = 254

// Wrap returns a kind whose messages are a real mail, with our fields before its own. Line ends become CRLF, since a
// mail on disk often has others; its body is not changed otherwise.
func Wrap(content []byte) *Mail {
	content = crlf(content)
	if bytes.HasPrefix(content, []byte("From ")) { // of an mbox
		_, content, _ = bytes.Cut(content, []byte("\r\n"))
	}
	m := &Mail{eight: bytes.ContainsFunc(content, func(r rune) bool { return r > 127 })}
	end := bytes.Index(content, []byte("\r\n\r\n"))
	switch {
	case !startsWithField(content): // no header at all: it would become part of ours
		m.header, m.body = []byte("\r\n"), content
	case end < 0:
		m.header = append(content, "\r\n"...)
	default:
		m.header, m.body = content[:end+4], content[end+4:]
	}
	sum := sha256.Sum256(m.body)
	m.sum = []byte(hex.EncodeToString(sum[:]))
	return m
}

// EightBit tells whether the mail has octets over 127, and so needs 8BITMIME. (RFC 6152.)
func (m *Mail) EightBit() bool { return m.eight }

// Message is one message of a kind in three parts, in this order. Body is shared: it must not be written to.
type Message struct {
	Header, Body, Tail []byte
}

// Len is the number of octets of the message.
func (m Message) Len() int { return len(m.Header) + len(m.Body) + len(m.Tail) }

// Bytes returns the message in one piece.
func (m Message) Bytes() []byte { return bytes.Join([][]byte{m.Header, m.Body, m.Tail}, nil) }

// Make makes the message with an id, for one recipient at least. buf, which may be nil, is where its own parts are written.
func (m *Mail) Make(buf []byte, id, from string, to ...string) Message {
	tailStart := len(buf)
	if m.plain {
		buf = append(buf, "rohrload "...)
		buf = append(buf, id...)
		buf = append(buf, "\r\n"...)
	}
	tail := buf[tailStart:len(buf):len(buf)]
	start := len(buf)
	buf = field(buf, HeaderID, id)
	for _, recipient := range to {
		buf = field(buf, HeaderFor, recipient)
	}
	buf = append(buf, HeaderHash+": "...)
	if m.plain {
		var sum [sha256.Size]byte
		h := restore(m.state)
		h.Write(tail)
		buf = hex.AppendEncode(buf, h.Sum(sum[:0]))
		buf = append(buf, "\r\n"...)
		buf = field(field(field(buf, "From", from), "To", to[0]), "Subject", "Load "+id)
		buf = append(buf, "\r\n"...)
	} else {
		buf = append(append(buf, m.sum...), "\r\n"...)
		buf = append(buf, m.header...)
	}
	return Message{Header: buf[start:], Body: m.body, Tail: tail}
}

func field(buf []byte, name, value string) []byte {
	buf = append(append(append(buf, name...), ": "...), value...)
	return append(buf, "\r\n"...)
}

// save and restore keep the state of a hash, so that a body that is shared by all messages is hashed once.
func save(h hash.Hash) []byte {
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("saving the state of SHA-256: %v", err)) // it never fails
	}
	return state
}

func restore(state []byte) hash.Hash {
	h := sha256.New()
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		panic(fmt.Sprintf("restoring the state of SHA-256: %v", err)) // it was saved by the same program
	}
	return h
}

// crlf ends every line by CRLF, the last one too.
func crlf(content []byte) []byte {
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
	if len(content) > 0 && !bytes.HasSuffix(content, []byte("\n")) {
		content = append(content, '\n')
	}
	return bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n"))
}

// startsWithField tells whether the first line is a header field. (RFC 5322, section 2.2.)
func startsWithField(content []byte) bool {
	line, _, _ := bytes.Cut(content, []byte("\r\n"))
	name, _, found := bytes.Cut(line, []byte(":"))
	return found && len(name) > 0 && bytes.IndexFunc(name, func(r rune) bool { return r <= ' ' || r >= 127 }) < 0
}
