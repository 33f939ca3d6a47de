package parser

import (
	"strings"
)

// words decodes the encoded words of a valid text (RFC 2047), also where they are not quite as the RFC wants them:
// with spaces inside, without space around, cut through characters. Controls that could break a line are taken out.
func (r *reader) words(s string, where place) string {
	if strings.Contains(s, "=?") {
		s = r.decodeWords(s, where)
	}
	return r.line(s, where)
}

// line is oneLine for what was decoded, of which some readers see no more than stands before a NUL.
func (r *reader) line(s string, where place) string {
	if strings.IndexByte(s, 0) >= 0 {
		r.once("ambiguous_nul", severe, where, "a NUL in a header field")
	}
	return oneLine(s)
}

// oneLine makes CR and LF spaces, so that nothing decoded can pass for a header field of its own.
func oneLine(s string) string {
	if strings.ContainsAny(s, "\r\n") {
		s = strings.NewReplacer("\r\n", " ", "\r", " ", "\n", " ").Replace(s)
	}
	return clean(s)
}

// word is an encoded word.
type word struct {
	charset string
	octets  []byte
}

func (r *reader) decodeWords(s string, where place) string {
	var out strings.Builder
	var open word // the word whose charset is still to be decoded, since the next may go on in the middle of a character
	isOpen := false
	flush := func() {
		if isOpen {
			out.WriteString(r.decodeCharset(open.charset, open.octets, where))
		}
		isOpen = false
	}
	last := strings.LastIndex(s, "?=")
	for len(s) > 0 {
		i := strings.Index(s, "=?")
		if i < 0 || i > last {
			break
		}
		if r.wordCount >= r.limits.EncodedWords {
			r.once("encoded_word_limit", severe, where, "more than %d encoded words", r.limits.EncodedWords)
			break
		}
		w, size := r.word(s[i:], where)
		if size == 0 {
			flush()
			out.WriteString(s[:i+2])
			s, last = s[i+2:], last-i-2
			continue
		}
		// White space between two encoded words is not part of the text (RFC 2047, 6.2).
		between := s[:i]
		if !isOpen || strings.Trim(between, " \t") != "" {
			flush()
			out.WriteString(between)
		}
		if isOpen && strings.EqualFold(open.charset, w.charset) {
			open.octets = append(open.octets, w.octets...)
		} else {
			flush()
			open, isOpen = w, true
		}
		s, last = s[i+size:], last-i-size
	}
	flush()
	out.WriteString(s)
	return out.String()
}

// maxCharset is the longest name of a charset, with a language behind it, that is looked at.
const maxCharset = 80

// word reads the encoded word at the start of s and tells its size, 0 if there is none.
func (r *reader) word(s string, where place) (word, int) {
	name := strings.IndexByte(s[2:min(len(s), maxCharset+2)], '?')
	if name <= 0 || strings.ContainsAny(s[2:2+name], " \t=\"") || len(s) < name+5 || s[name+4] != '?' {
		return word{}, 0
	}
	encoding := s[name+3] | 0x20
	if encoding != 'q' && encoding != 'b' {
		r.once("malformed_encoded_word", warning, where, "unknown encoding: %s", excerpt(s))
		return word{}, 0
	}
	text := name + 5
	size := strings.Index(s[text:], "?=")
	if size < 0 {
		r.once("malformed_encoded_word", warning, where, "without end: %s", excerpt(s))
		return word{}, 0
	}
	charset, _, _ := strings.Cut(s[2:2+name], "*") // the language of RFC 2231, 5
	w := word{charset: charset}
	var ok bool
	if encoding == 'q' {
		w.octets, ok = decodeQ(s[text : text+size])
	} else {
		w.octets, ok = decodeBase64([]byte(s[text : text+size]))
	}
	if !ok {
		r.once("malformed_encoded_word", warning, where, "damaged: %s", excerpt(s))
	}
	r.wordCount++
	return w, text + size + 2
}

// decodeQ reads the Q encoding (RFC 2047, 4.2). A lone "=" stays.
func decodeQ(s string) ([]byte, bool) {
	out := make([]byte, 0, len(s))
	ok := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '_':
			c = ' '
		case '=':
			if octet, is := hexPair(s[i+1:]); is {
				c = octet
				i += 2
			} else {
				ok = false
			}
		}
		out = append(out, c)
	}
	return out, ok
}

// hexPair is the octet that two hexadecimal digits at the start of s stand for, if they are there.
func hexPair[T string | []byte](s T) (octet byte, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	high, low := unhex(s[0]), unhex(s[1])
	return high<<4 | low, high < 16 && low < 16
}

// unhex is the value of a hexadecimal digit of either case, 255 for anything else.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}
