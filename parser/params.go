package parser

import (
	"cmp"
	"slices"
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

// How many parameters are kept, the pieces of continuations counted one by one.
const (
	maxParams    = 1000 // of a value
	maxAllParams = 5000 // of a message
	fewParams    = 10   // of a value in any case: many in one part hide no boundary in another
)

// structured reads an unfolded value with its parameters (RFC 2045, 5.1; RFC 2231).
func (r *reader) structured(s string, where place) structured {
	l := lexer{s: s}
	value := strings.TrimSuffix(lowerASCII(l.value()), "/")
	var raw []param
	limit := max(min(maxParams, maxAllParams-r.paramCount), fewParams)
	for l.i < len(l.s) {
		p, ok := l.param()
		if ok && len(raw) == limit {
			r.defect("ambiguous_parameter", severe, where, "more than %d parameters", limit)
			break
		}
		if ok {
			raw = append(raw, p)
		}
	}
	r.paramCount += len(raw)
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

// value reads what stands before the first semicolon or parameter, white space, comments and all words but the first left out.
func (l *lexer) value() string {
	plain, _, _ := strings.Cut(l.s, ";")
	if trimmed := strings.TrimRight(plain, " \t"); !strings.ContainsAny(trimmed, " \t(") {
		l.i = min(len(plain)+1, len(l.s))
		return trimmed
	}
	var out strings.Builder
	behind := false // whether the first word has ended
	for ; l.i < len(l.s); l.i++ {
		switch c := l.s[l.i]; {
		case c == ';':
			l.i++
			return out.String()
		case c == '(':
			if end := commentEnd(l.s, l.i); end > 0 {
				l.comment(l.i, end)
				l.i = end - 1
			} else {
				l.odd = true
			}
		case !isSpace(c):
			if out.Len() > 0 && isSpace(l.s[l.i-1]) && c != '/' && !strings.HasSuffix(out.String(), "/") {
				l.odd, behind = true, true
				if l.isParam(l.i) { // without semicolon before it
					return out.String()
				}
			}
			if !behind {
				out.WriteByte(c)
			}
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
			l.comment(l.i, end)
			l.i = end
			continue
		}
		if !isSpace(l.s[l.i]) {
			return
		}
		l.i++
	}
}

// comment notes a comment that is passed over. One with a semicolon holds parameters for readers that know no comments.
func (l *lexer) comment(from, end int) {
	l.comments = true
	l.odd = l.odd || strings.IndexByte(l.s[from:end], ';') >= 0
}

// param reads the next parameter and what ends it.
func (l *lexer) param() (param, bool) {
	l.space()
	start := l.i
	for l.i < len(l.s) && l.s[l.i] != '=' && l.s[l.i] != ';' && l.s[l.i] != '(' && l.s[l.i] != '"' {
		l.i++
	}
	name := lowerASCII(strings.TrimSpace(l.s[start:l.i]))
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
			next := l.s[l.i]
			plain := next >= 0x80 || isLetter(next) || isDigit(next)
			l.odd = l.odd || plain || !isPath
			if plain && isPath {
				out.WriteByte(c)
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
			l.comment(i, end)
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

// piece is an extended parameter, or a part of one.
type piece struct {
	name    string
	number  int
	encoded bool
	value   string
}

// joinParams joins continuations and decodes (RFC 2231, 3 and 4). The first of a name wins, but an extended one wins
// over a plain one, as it is meant to.
func (r *reader) joinParams(raw []param, where place) map[string]string {
	if len(raw) == 0 {
		return nil
	}
	out := map[string]string{}
	var pieces []piece
	for _, p := range raw {
		name, number, encoded, ok := splitName(p.name)
		if ok && !isPieceName(p.name, name, number) {
			r.defect("ambiguous_parameter", severe, where, "an odd name of a piece: %q", excerpt(p.name))
		}
		switch {
		case !ok:
			if _, known := out[p.name]; known {
				r.defect("ambiguous_parameter", severe, where, "%q twice", excerpt(p.name))
				continue
			}
			out[clean(p.name)] = r.paramWords(p.value, where)
		case name == "":
			r.defect("ambiguous_parameter", severe, where, "no name: %q", excerpt(p.name))
		default:
			pieces = append(pieces, piece{name, number, encoded, p.value})
		}
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
	for len(pieces) > 0 {
		n := 1
		for n < len(pieces) && pieces[n].name == pieces[0].name {
			n++
		}
		r.joinPieces(out, pieces[:n], where)
		pieces = pieces[n:]
	}
	return out
}

// paramWords decodes the encoded words of a parameter. They have no place there (RFC 2047, 5), but many writers put file names
// so and the widespread clients decode them; other readers see another name.
func (r *reader) paramWords(value string, where place) string {
	text := r.words(value, where)
	if text != value && strings.Contains(value, "=?") {
		r.defect("ambiguous_encoded_parameter", warning, where, "%s", excerpt(value))
	}
	return text
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

// joinPieces joins the pieces of one parameter, which are in order.
func (r *reader) joinPieces(out map[string]string, pieces []piece, where place) {
	name := clean(pieces[0].name)
	if _, known := out[name]; known {
		r.defect("ambiguous_parameter", severe, where, "%q both plain and extended", excerpt(name))
	}
	var octets []byte
	charset := ""
	distinct := len(pieces)
	for k, p := range pieces {
		value := p.value
		switch prefix := charset + "'"; {
		case k > 0 && p.number == pieces[k-1].number:
			r.defect("ambiguous_parameter", severe, where, "piece %d of %q twice", p.number, excerpt(name))
			distinct--
			continue
		case !p.encoded:
			octets = append(octets, value...)
			continue
		case k == 0:
			if parts := strings.SplitN(value, "'", 3); len(parts) == 3 {
				charset, value = parts[0], parts[2]
			} else {
				r.defect("malformed_parameter", warning, where, "no charset: %s", excerpt(value))
			}
		case len(prefix) > 1 && len(value) > len(prefix) && strings.EqualFold(value[:len(prefix)], prefix):
			// Some writers name the charset again.
			r.defect("malformed_parameter", warning, where, "a charset in a later piece: %s", excerpt(value))
			value = value[len(prefix):]
		}
		octets = append(octets, percentDecode(value)...)
	}
	if pieces[len(pieces)-1].number >= distinct {
		r.defect("ambiguous_parameter", severe, where, "pieces of %q are missing", excerpt(name))
	}
	if charset == "" {
		out[name] = r.paramWords(r.guess(string(octets), where), where)
	} else {
		out[name] = r.line(r.decodeCharset(charset, octets, where), where)
	}
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
