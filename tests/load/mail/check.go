package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// Check recognises a message wherever it arrived: it returns the id, and an error where the body is not the one that was
// sent. Fields before and after ours don't matter, so trace fields may have been added. Content whose lines end in LF
// alone, as some keep mail on disk, counts as if they ended in CRLF.
func Check(content []byte) (id string, err error) {
	header, body := split(content)
	id = value(header, HeaderID)
	if id == "" {
		return "", ErrNoID
	}
	want := value(header, HeaderHash)
	if want == "" {
		return id, ErrNoHash
	}
	if header.bareLF {
		body = bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n"))
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != want {
		return id, ErrHash
	}
	return id, nil
}

// CheckFor is an error where a message that names its recipients does not name this one: whoever counts only what arrived would
// take it for one that was lost.
func CheckFor(content []byte, recipient string) error {
	header, _ := split(content)
	named := false
	for line := range bytes.Lines(header.text) {
		if to, ok := is(line, HeaderFor); ok {
			if bytes.EqualFold(to, []byte(recipient)) {
				return nil
			}
			named = true
		}
	}
	if named {
		return ErrFor
	}
	return nil
}

// FindID finds the id that stands anywhere in a content at the start of a line, such as that of the returned message
// within a notification. (RFC 3462.) It is empty where there is none.
func FindID(content []byte) string {
	for {
		i := bytes.Index(content, []byte(HeaderID+": "))
		if i < 0 {
			return ""
		}
		if i == 0 || content[i-1] == '\n' {
			line, _, _ := bytes.Cut(content[i+len(HeaderID)+2:], []byte("\n"))
			return string(bytes.TrimRight(line, "\r"))
		}
		content = content[i+1:]
	}
}

// header is the header of a message.
type header struct {
	text   []byte
	bareLF bool
}

// split parts header and body.
func split(content []byte) (header, []byte) {
	if i := bytes.Index(content, []byte("\r\n\r\n")); i >= 0 {
		return header{text: content[:i+2]}, content[i+4:]
	}
	if i := bytes.Index(content, []byte("\n\n")); i >= 0 {
		return header{text: content[:i+1], bareLF: true}, content[i+2:]
	}
	return header{text: content}, nil
}

// value is the value of the first field of a name.
func value(h header, name string) string {
	for line := range bytes.Lines(h.text) {
		if v, ok := is(line, name); ok {
			return string(v)
		}
	}
	return ""
}

// is tells whether a line is a field of a name, and its value.
func is(line []byte, name string) ([]byte, bool) {
	if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
		return bytes.TrimSpace(line[len(name)+1:]), true
	}
	return nil, false
}
