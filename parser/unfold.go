package parser

import (
	"bytes"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

// unfold makes each fold one space, takes the white space around a value away and makes it valid UTF-8 (RFC 5322, 2.2.3;
// RFC 6532). A fold inside an encoded word, where no white space may stand (RFC 2047, 2), goes.
func (r *reader) unfold(raw []byte, where place) string {
	raw = bytes.Trim(r.cutField(raw, int(r.limits.HeaderBytes), where), " \t\r\n")
	return r.guess(r.withoutFolds(raw, where, func(out, _ []byte) []byte {
		out = bytes.TrimRight(out, " \t")
		if inWord(out) {
			return out
		}
		return append(out, ' ')
	}), where)
}

// unfoldParams is unfold for values with parameters: white space in quotes is part of a parameter, of whatever length. Tabs
// become spaces.
func (r *reader) unfoldParams(raw []byte, where place) string {
	limit := int(r.limits.HeaderBytes)
	raw = r.cutField(raw, max(limit-r.paramBytes, min(limit, fewParamBytes)), where)
	r.paramBytes += len(raw)
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return r.guess(r.withoutFolds(raw, where, func(out, space []byte) []byte {
		for _, c := range space {
			if isSpace(c) {
				out = append(out, ' ')
			}
		}
		return out
	}), where)
}

// fewParamBytes is how much of a value with parameters is read when the fields before it have used up the limit.
const fewParamBytes = 4 << 10

// cutField gives the start of a field that is above a limit: what is made of a value takes many times its memory.
func (r *reader) cutField(raw []byte, limit int, where place) []byte {
	if len(raw) > limit {
		r.once("header_bytes_limit", severe, where, "a header field of more than %s", bytesize.Size(limit))
		raw = raw[:limit]
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		r.once("ambiguous_nul", severe, where, "a NUL in a header field")
	}
	return raw
}

// withoutFolds lets join replace each fold, which is the line end with the white space behind it.
func (r *reader) withoutFolds(raw []byte, where place, join func(out, space []byte) []byte) string {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return r.strs.add(raw)
	}
	out := r.scratch[:0]
	for end := bytes.IndexAny(raw, "\r\n"); end >= 0; end = bytes.IndexAny(raw, "\r\n") {
		out = append(out, raw[:end]...)
		rest := bytes.TrimLeft(raw[end:], " \t\r\n")
		space := raw[end : len(raw)-len(rest)]
		out = join(out, space)
		if bytes.IndexByte(space, '\n') < 0 {
			r.once("ambiguous_bare_cr", severe, where, "a CR without LF in a header field")
		}
		raw = rest
	}
	out = append(out, raw...)
	r.scratch = out
	return r.strs.add(out)
}

// inWord tells whether a text ends inside an encoded word.
func inWord(b []byte) bool {
	b = b[max(len(b)-maxFoldedWord, 0):]
	i := bytes.LastIndex(b, []byte("=?"))
	if i < 0 || bytes.HasSuffix(b, []byte("?=")) {
		return false
	}
	charset, rest, ok := bytes.Cut(b[i+2:], []byte("?"))
	return ok && len(rest) > 1 && rest[1] == '?' && bytes.IndexByte(rest[2:], '?') < 0 &&
		bytes.IndexByte(charset, ' ') < 0 && bytes.IndexByte(rest, ' ') < 0
}

// maxFoldedWord is how far back the start of an encoded word is looked for; it may have 75 octets (RFC 2047, 2).
const maxFoldedWord = 500
