package parser

import "strings"

// htmlSpace is the white space of HTML.
const htmlSpace = " \t\n\f\r"

// commentLength is how long the comment at the start of s is. It may end at once, in `<!-->` and `<!--->`.
func commentLength(s string) int {
	const open = len("<!--")
	rest := s[open:]
	for _, end := range []string{">", "->"} {
		if strings.HasPrefix(rest, end) {
			return open + len(end)
		}
	}
	for i := 0; ; {
		j := strings.Index(rest[i:], "--")
		if j < 0 {
			return len(s)
		}
		i += j + 2
		if end := strings.TrimPrefix(rest[i:], "!"); strings.HasPrefix(end, ">") {
			return len(s) - len(end) + 1
		}
		i-- // the second hyphen may be the first of the end
	}
}

// tagName is the name of the tag in lower case, as far as it can be one we know, and whether it is an end tag.
func tagName(s string) (name string, closing bool) {
	rest := strings.TrimPrefix(s, "/")
	if i := strings.IndexAny(rest[:min(len(rest), 16)], htmlSpace+"/>"); i >= 0 {
		rest = rest[:i]
	}
	return lowerASCII(rest[:min(len(rest), 16)]), len(s) > len(rest) && s[0] == '/'
}

// tagLength is how long the tag at the start of s is. A ">" in the quotes of an attribute does not end it.
func tagLength(s string) int {
	i := passUntil(s, 1, htmlSpace+">")
	for i < len(s) {
		if i = passOver(s, i, htmlSpace+"/"); i < len(s) && s[i] == '>' {
			return i + 1
		}
		i = passUntil(s, i+1, htmlSpace+"/>=") // a name may start with an equals sign
		if i = passOver(s, i, htmlSpace); i < len(s) && s[i] == '=' {
			i = valueEnd(s, i+1)
		}
	}
	return len(s)
}

// valueEnd is where the value of an attribute ends that starts at or after i.
func valueEnd(s string, i int) int {
	if i = passOver(s, i, htmlSpace); i < len(s) && (s[i] == '"' || s[i] == '\'') {
		return passUntil(s, i+1, s[i:i+1]) + 1
	}
	return passUntil(s, i, htmlSpace+">")
}

// passOver is where the octets of a set end that stand at i.
func passOver(s string, i int, set string) int {
	for i < len(s) && strings.IndexByte(set, s[i]) >= 0 {
		i++
	}
	return i
}

// passUntil is where the first octet of a set stands at or after i, the end of s where none does.
func passUntil(s string, i int, set string) int {
	for i < len(s) && strings.IndexByte(set, s[i]) < 0 {
		i++
	}
	return i
}

// element reads the inside of an element that holds no tags but its end, and what follows it. Without an end it has no
// inside, so that a lone tag hides nothing.
func (w *htmlText) element(s, name string) (inside, after string) {
	if w.unended[name] {
		return "", s
	}
	tag := "</" + name
	for i := 0; ; {
		j := strings.Index(s[i:], "</")
		if j < 0 {
			if w.unended == nil {
				w.unended = make(map[string]bool)
			}
			w.unended[name] = true
			return "", s
		}
		i += j
		rest := s[i:]
		if len(rest) > len(tag) && strings.EqualFold(rest[:len(tag)], tag) && strings.IndexByte(htmlSpace+"/>", rest[len(tag)]) >= 0 {
			return s[:i], rest[tagLength(rest):]
		}
		i += 2
	}
}
