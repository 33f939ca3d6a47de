package parser

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// param is a parameter as it stands: the name in lower case, the value without quotes.
type param struct {
	name  string
	value string
}

// structured is a value with parameters, such as Content-Type and Content-Disposition.
type structured struct {
	value  string // in lower case
	params map[string]string
}

// maxParams is how many parameters of a value are kept, the pieces of continuations counted one by one.
const maxParams = 1000

// structured reads an unfolded value with its parameters (RFC 2045, 5.1; RFC 2231).
func (r *reader) structured(s string, where place) structured {
	l := lexer{s: s}
	value := strings.TrimSuffix(strings.ToLower(l.value()), "/")
	var raw []param
	for l.i < len(l.s) {
		p, ok := l.param()
		if ok && len(raw) == maxParams {
			r.defect("ambiguous_parameter", severe, where, "more than %d parameters", maxParams)
			break
		}
		if ok {
			raw = append(raw, p)
		}
	}
	if l.comments {
		r.defect("ambiguous_comment", warning, where, "a comment: %s", excerpt(s))
	}
	if l.odd {
		r.defect("ambiguous_parameter", severe, where, "%s", excerpt(s))
	}
	return structured{value: value, params: r.joinParams(raw, where)}
}

// lexer reads a value with parameters. Each octet is looked at a bounded number of times.
type lexer struct {
	s        string
	i        int
	odd      bool // whether something was guessed
	comments bool // whether there were comments
	unclosed bool // whether a quoted string had no end, so that none is looked for far away again
}

// value reads what stands before the first semicolon, white space and comments left out.
func (l *lexer) value() string {
	plain, _, _ := strings.Cut(l.s, ";")
	if trimmed := strings.TrimRight(plain, " \t"); !strings.ContainsAny(trimmed, " \t(") {
		l.i = min(len(plain)+1, len(l.s))
		return trimmed
	}
	var out strings.Builder
	slash := false
	for ; l.i < len(l.s); l.i++ {
		switch c := l.s[l.i]; {
		case c == ';':
			l.i++
			return out.String()
		case c == '(':
			if end := commentEnd(l.s, l.i); end > 0 {
				l.i, l.comments = end-1, true
			} else {
				l.odd = true
			}
		case !isSpace(c):
			// A parameter without semicolon before it.
			if slash && isSpace(l.s[l.i-1]) && l.isParam(l.i) {
				l.odd = true
				return out.String()
			}
			slash = slash || c == '/'
			out.WriteByte(c)
		}
	}
	return out.String()
}

// isParam tells whether a token and an equals sign stand at i.
func (l *lexer) isParam(i int) bool {
	start := i
	for i < len(l.s) && isToken(l.s[i]) {
		i++
	}
	for j := i; j < len(l.s) && i > start; j++ {
		if !isSpace(l.s[j]) {
			return l.s[j] == '='
		}
	}
	return false
}

// isToken tells whether an octet may stand in a token (RFC 2045, 5.1).
func isToken(c byte) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune(`()<>@,;:\"/[]?=`, rune(c))
}

// space passes over white space and comments.
func (l *lexer) space() {
	for l.i < len(l.s) {
		if l.s[l.i] == '(' {
			end := commentEnd(l.s, l.i)
			if end == 0 {
				return
			}
			l.i, l.comments = end, true
			continue
		}
		if !isSpace(l.s[l.i]) {
			return
		}
		l.i++
	}
}

// param reads the next parameter and what ends it.
func (l *lexer) param() (param, bool) {
	l.space()
	start := l.i
	for l.i < len(l.s) && l.s[l.i] != '=' && l.s[l.i] != ';' && l.s[l.i] != '(' && l.s[l.i] != '"' {
		l.i++
	}
	name := strings.ToLower(strings.TrimSpace(l.s[start:l.i]))
	l.space()
	if l.i >= len(l.s) || l.s[l.i] != '=' {
		l.odd = l.odd || name != ""
		if l.i < len(l.s) {
			l.i++
		}
		return param{}, false
	}
	l.i++
	l.space()
	var value string
	if l.i < len(l.s) && l.s[l.i] == '"' {
		value = l.quoted(name)
	} else {
		value = l.bare()
		l.odd = l.odd || strings.ContainsAny(value, `(),"\`)
		if value == "" {
			return param{}, false
		}
	}
	return param{name: name, value: value}, name != ""
}

// bare reads a value without quotes up to the semicolon. It may hold spaces and specials, as many writers leave the
// quotes out.
func (l *lexer) bare() string {
	start := l.i
	for l.i < len(l.s) && l.s[l.i] != ';' {
		if isSpace(l.s[l.i]) {
			mark := l.i
			had := l.comments
			l.space()
			if l.i >= len(l.s) || l.s[l.i] == ';' {
				value := l.s[start:mark]
				l.i = min(l.i+1, len(l.s))
				return value
			}
			l.comments = had
			if l.isParam(l.i) {
				l.odd = true
				return l.s[start:mark]
			}
			l.odd = true
			continue
		}
		l.i++
	}
	value := l.s[start:l.i]
	l.i = min(l.i+1, len(l.s))
	return value
}

// quoted reads a quoted string. A quote that no parameter or end follows is taken for a part of the value, so that it
// does not swallow the parameters behind it.
func (l *lexer) quoted(name string) string {
	// Of a file name it is mostly of a path that nobody quoted (RFC 2045 would take it away everywhere).
	isPath := name != "boundary" && name != "charset"
	l.i++
	open := l.i
	if n := strings.IndexAny(l.s[open:], `"\`); n >= 0 && l.s[open+n] == '"' {
		if l.i = open + n + 1; l.closes() {
			return l.s[open : open+n]
		}
		l.i = open
	}
	var out strings.Builder
	for l.i < len(l.s) {
		c := l.s[l.i]
		l.i++
		switch {
		case c == '\\' && l.i < len(l.s):
			if next := l.s[l.i]; next >= 0x80 || isLetter(next) || isDigit(next) {
				l.odd = true
				if isPath {
					out.WriteByte(c)
				}
			}
			out.WriteByte(l.s[l.i])
			l.i++
		case c == '"' && l.closes():
			return out.String()
		case l.unclosed && (c == '"' || c == ';'):
			return out.String()
		case c == '"':
			l.odd = true
			out.WriteByte(c)
		default:
			out.WriteByte(c)
		}
	}
	// No quote closes it: it ends at the next semicolon.
	l.odd, l.unclosed = true, true
	value, _, _ := strings.Cut(l.s[open:], ";")
	l.i = min(open+len(value)+1, len(l.s))
	return value
}

// closes tells whether the quote before l.i closes a string, and if so passes over what ends the parameter.
func (l *lexer) closes() bool {
	i := l.i
	for i < len(l.s) && isSpace(l.s[i]) {
		i++
	}
	if i < len(l.s) && l.s[i] == '(' {
		if end := commentEnd(l.s, i); end > 0 {
			l.comments = true
			for i = end; i < len(l.s) && isSpace(l.s[i]); {
				i++
			}
		}
	}
	switch {
	case i >= len(l.s):
		l.i = i
	case l.s[i] == ';':
		l.i = i + 1
	case l.isParam(i):
		l.odd, l.i = true, i
	default:
		return false
	}
	return true
}

// maxComment and maxNesting are how long and how deep a comment may be to be seen as one.
const (
	maxComment = 1000
	maxNesting = 20
)

// commentEnd is where the comment at i ends, 0 if it does not (RFC 5322, 3.2.2).
func commentEnd(s string, i int) int {
	depth := 0
	for j := i; j < len(s) && j < i+maxComment; j++ {
		switch s[j] {
		case '\\':
			j++
		case '(':
			if depth++; depth > maxNesting {
				return 0
			}
		case ')':
			if depth--; depth == 0 {
				return j + 1
			}
		}
	}
	return 0
}

// pieces are the continuations of one parameter.
type pieces struct {
	numbers []int
	values  map[int]string
	encoded map[int]bool
}

// joinParams joins continuations and decodes (RFC 2231, 3 and 4). The first of a name wins, but an extended one wins
// over a plain one, as it is meant to.
func (r *reader) joinParams(raw []param, where place) map[string]string {
	out := map[string]string{}
	split := map[string]*pieces{}
	for _, p := range raw {
		name, number, encoded, ok := splitName(p.name)
		if ok && !isPieceName(p.name, name, number) {
			r.defect("ambiguous_parameter", severe, where, "an odd name of a piece: %q", excerpt(p.name))
		}
		if !ok {
			if _, known := out[p.name]; known {
				r.defect("ambiguous_parameter", severe, where, "%q twice", excerpt(p.name))
				continue
			}
			out[clean(p.name)] = r.words(p.value, where)
			continue
		}
		if name == "" {
			r.defect("ambiguous_parameter", severe, where, "no name: %q", excerpt(p.name))
			continue
		}
		s := split[name]
		if s == nil {
			s = &pieces{values: map[int]string{}, encoded: map[int]bool{}}
			split[name] = s
		}
		if _, known := s.values[number]; known {
			r.defect("ambiguous_parameter", severe, where, "%q twice", excerpt(p.name))
			continue
		}
		s.numbers = append(s.numbers, number)
		s.values[number], s.encoded[number] = p.value, encoded
	}
	for _, name := range sortedKeys(split) {
		if _, known := out[name]; known {
			r.defect("ambiguous_parameter", severe, where, "%q both plain and extended", excerpt(name))
		}
		if last := slices.Max(split[name].numbers); last >= len(split[name].numbers) {
			r.defect("ambiguous_parameter", severe, where, "pieces of %q are missing", excerpt(name))
		}
		out[clean(name)] = r.joinPieces(split[name], where)
	}
	return out
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// maxNumber is the highest number of a piece; a higher one is none.
const maxNumber = 9999

// splitName reads `name*`, `name*0` and `name*0*`, and what else stands around asterisks as well as it can.
func splitName(s string) (name string, number int, encoded, ok bool) {
	if !strings.Contains(s, "*") {
		return s, 0, false, false
	}
	name, rest, _ := strings.Cut(strings.TrimLeft(s, "* "), "*")
	digits, _, _ := strings.Cut(rest, "*")
	number, err := strconv.Atoi(strings.TrimSpace(digits))
	if err != nil || number < 0 || number > maxNumber {
		number = 0
	}
	return strings.TrimSpace(name), number, strings.HasSuffix(s, "*"), true
}

// isPieceName tells whether a name is written as RFC 2231 has it. Others are read in as many ways as there are readers.
func isPieceName(s, name string, number int) bool {
	rest, ok := strings.CutPrefix(s, name+"*")
	digits := strconv.Itoa(number)
	return ok && (rest == "" || rest == digits || rest == digits+"*")
}

func (r *reader) joinPieces(p *pieces, where place) string {
	sort.Ints(p.numbers)
	var octets []byte
	charset := ""
	for k, n := range p.numbers {
		value := p.values[n]
		if !p.encoded[n] {
			octets = append(octets, value...)
			continue
		}
		if k == 0 {
			if parts := strings.SplitN(value, "'", 3); len(parts) == 3 {
				charset, value = parts[0], parts[2]
			} else {
				r.defect("malformed_parameter", warning, where, "no charset: %s", excerpt(value))
			}
		} else if prefix := charset + "'"; len(prefix) > 1 && len(value) > len(prefix) && strings.EqualFold(value[:len(prefix)], prefix) {
			// Some writers name the charset again.
			r.defect("malformed_parameter", warning, where, "a charset in a later piece: %s", excerpt(value))
			value = value[len(prefix):]
		}
		octets = append(octets, percentDecode(value)...)
	}
	if charset == "" {
		return r.words(r.guess(string(octets), where), where)
	}
	return oneLine(r.decodeCharset(charset, octets, where))
}

func percentDecode(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if octet, ok := hexPair(s[i+1:]); ok {
				c = octet
				i += 2
			}
		}
		out = append(out, c)
	}
	return out
}
