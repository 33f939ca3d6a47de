package parser

import (
	"slices"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// addresses reads an address list (RFC 5322, 3.4 and 4.4), groups flattened.
func (r *reader) addresses(s string, where place) []*mailv1.Address {
	p := &r.mailbox
	*p = addressReader{reader: r, where: where, s: s}
	p.words, p.glued, p.atoms = p.few.words[:0], p.few.glued[:0], p.few.atoms[:0]
	limit := max(maxAddresses-r.addressCount, fewAddresses)
	for p.i < len(p.s) && len(p.out) < limit {
		p.step()
	}
	p.end()
	r.addressCount += len(p.out)
	if p.i < len(p.s) {
		r.once("address_limit", severe, where, "more than %d addresses", limit)
	}
	return p.out
}

const (
	// maxAddresses is how many addresses of a message are read.
	maxAddresses = 10_000
	// fewAddresses is how many of a field are read in any case: a long To hides no From.
	fewAddresses = 100
	// maxWords is how many words a mailbox may have.
	maxWords = 1000
)

// addressReader reads an address list in one pass.
type addressReader struct {
	*reader
	where place
	s     string
	i     int
	out   []*mailv1.Address

	group   string
	inGroup bool
	isSplit bool // whether a semicolon outside a group was passed

	// What was read of the mailbox under way.
	words   []string // the display name or, without angle brackets, the address
	glued   []bool   // whether the word stands right behind the one before
	atoms   []string // the words as they stand, quotes included
	notes   []string // the texts of comments
	angle   string
	isAngle bool
	before  int  // how many words stand before the brackets
	space   bool // whether white space was passed since the last word
	at      bool // whether an "@" was among the atoms

	noQuote, noAngle bool // whether none that closes is left
	isNoted          bool // whether it was noted that readers differ

	// few is room for the words of most mailboxes.
	few struct {
		words, atoms [4]string
		glued        [4]bool
	}
}

func (p *addressReader) step() {
	c := p.s[p.i]
	switch {
	case isSpace(c):
		p.space = true
		p.i++
	case c == '"':
		p.quoted()
	case c == '(':
		p.parenthesis()
	case c == '<' && !p.noAngle:
		p.route()
	case c == ',' || c == ';':
		p.end()
		if c == ';' {
			p.semicolon()
		}
		p.i++
	case c == ':' && !p.isAngle && !p.at:
		p.group, p.inGroup = oneLine(p.phrase()), true
		p.reset()
		p.i++
	default:
		p.atom()
	}
}

// semicolon ends a group. Outside of one some readers take it for a comma, as is done here, others for the end of the list.
func (p *addressReader) semicolon() {
	p.isSplit = p.isSplit || !p.inGroup && len(p.out) > 0
	p.group, p.inGroup = "", false
}

// atom reads up to the next special, a domain literal as a whole.
func (p *addressReader) atom() {
	start := p.i
	if p.s[start] == '[' {
		if n := strings.IndexAny(p.s[start:min(len(p.s), start+256)], "],"); n > 0 && p.s[start+n] == ']' {
			p.i = start + n + 1
		}
	}
	p.i = max(p.i, start+1)
	for p.i < len(p.s) && p.s[p.i-1] != ']' && !strings.ContainsRune(" \t\"(<,;:[", rune(p.s[p.i])) {
		p.i++
	}
	p.add(p.s[start:p.i], p.s[start:p.i])
}

func (p *addressReader) add(word, atom string) {
	if len(p.words) == maxWords {
		p.malformed("too many words")
		return
	}
	p.words = append(p.words, word)
	p.glued = append(p.glued, len(p.words) > 1 && !p.space)
	p.atoms = append(p.atoms, atom)
	p.space = false
	p.at = p.at || atom[0] != '"' && strings.Contains(atom, "@")
}

// quoted reads a quoted string (RFC 5322, 3.2.4).
func (p *addressReader) quoted() {
	if n := strings.IndexAny(p.s[p.i+1:], `"\`) + p.i + 1; n > p.i && p.s[n] == '"' && !p.noQuote {
		p.add(p.s[p.i+1:n], p.s[p.i:n+1])
		p.i = n + 1
		return
	}
	var out strings.Builder
	for j := p.i + 1; j < len(p.s) && !p.noQuote; j++ {
		switch c := p.s[j]; {
		case c == '\\' && j+1 < len(p.s):
			j++
			out.WriteByte(p.s[j])
		case c == '"':
			p.add(out.String(), p.s[p.i:j+1])
			p.i = j + 1
			return
		default:
			out.WriteByte(c)
		}
	}
	p.noQuote = true
	p.ambiguous("a quote without end")
	p.i++
}

func (p *addressReader) parenthesis() {
	end := commentEnd(p.s, p.i)
	if end == 0 {
		p.malformed("a comment without end")
		p.i++
		return
	}
	p.note(p.s[p.i+1 : end-1])
	p.space = true
	p.i = end
}

// note keeps the text of a comment.
func (p *addressReader) note(s string) {
	if text := strings.TrimSpace(unescape(s)); text != "" && len(p.notes) < maxWords {
		p.notes = append(p.notes, text)
	}
}

// unescape takes the backslashes of quoted pairs away.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// route reads an address in angle brackets, an obsolete route before it left out (RFC 5322, 4.4).
func (p *addressReader) route() {
	start := p.i + 1
	end := angleEnd(p.s, start, !p.noQuote)
	if end < 0 && !p.noQuote {
		p.noQuote = true
		p.ambiguous("a quote without end")
		end = angleEnd(p.s, start, false)
	}
	if end < 0 {
		p.malformed("an angle bracket without end")
		// What is left up to the next comma or bracket is the address.
		p.noAngle = true
		n := strings.IndexAny(p.s[start:], ",;<>")
		if n < 0 {
			n = len(p.s) - start
		}
		p.setAngle(p.s[start : start+n])
		p.i = start + n
		return
	}
	p.setAngle(p.s[start:end])
	p.i = end + 1
}

// angleEnd finds the closing bracket, outside quotes or anywhere; -1 if there is none.
func angleEnd(s string, start int, quotes bool) int {
	inQuote := false
	for j := start; j < len(s); j++ {
		switch c := s[j]; {
		case c == '\\' && inQuote:
			j++
		case c == '"' && quotes:
			inQuote = !inQuote
		case c == '>' && !inQuote:
			return j
		}
	}
	return -1
}

func (p *addressReader) setAngle(s string) {
	if p.isAngle {
		p.ambiguous("two addresses without a comma")
		p.split()
	}
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "@") {
		if _, rest, ok := strings.Cut(s, ":"); ok {
			p.ambiguous("a route")
			s = strings.TrimSpace(rest)
		}
	}
	p.angle, p.isAngle, p.space = p.compact(s), true, true
	p.before = len(p.words)
}

// split finishes the mailbox before the words that followed its brackets, which belong to the next.
func (p *addressReader) split() {
	words, glued, atoms := slices.Clone(p.words[p.before:]), slices.Clone(p.glued[p.before:]), slices.Clone(p.atoms[p.before:])
	p.words, p.glued, p.atoms = p.words[:p.before], p.glued[:p.before], p.atoms[:p.before]
	p.end()
	p.words, p.glued, p.atoms = words, glued, atoms
}

// compact takes comments and the white space around dots and "@" out of an address (obs-local-part, obs-domain).
func (p *addressReader) compact(s string) string {
	if !strings.ContainsAny(s, " \t(") {
		return s
	}
	var out strings.Builder
	inQuote := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '(' && !inQuote {
			if end := commentEnd(s, i); end > 0 {
				p.note(s[i+1 : end-1])
				i = end - 1
				continue
			}
		}
		switch {
		case c == '"':
			inQuote = !inQuote
		case c == '\\' && inQuote && i+1 < len(s):
			out.WriteByte(c)
			i++
			c = s[i]
		case isSpace(c) && !inQuote:
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}

// end finishes a mailbox.
func (p *addressReader) end() {
	defer p.reset()
	var name, address string
	switch {
	case p.isAngle:
		name, address = p.phrase(), p.angle
		if p.at && slices.ContainsFunc(p.atoms, p.isOther) {
			p.ambiguous("an address beside the brackets")
		}
		if name == "" {
			name = p.comment()
		}
		if name == "" && address == "" {
			return
		}
	case len(p.words) == 0:
		if len(p.notes) == 0 {
			return
		}
		name = p.comment()
		p.malformed("only a comment")
	default:
		name, address = p.bare()
	}
	if p.isSplit {
		p.ambiguous("a semicolon between addresses")
	}
	if address != "" && ClassifyAddress(address) == AddressInvalid {
		p.malformed("no address")
		if strings.Count(address, "@") > 1 {
			p.ambiguous("more than one @")
		}
	}
	a := p.addressRooms.next()
	a.Name, a.Address, a.Comment, a.Group = oneLine(name), oneLine(address), oneLine(p.comment()), p.group
	p.out = append(p.out, a)
}

// bare reads a mailbox without angle brackets.
func (p *addressReader) bare() (name, address string) {
	name = p.comment()
	if !p.at {
		p.malformed("no @")
		if phrase := p.phrase(); phrase != strings.Join(p.words, " ") {
			if strings.Contains(phrase, "@") {
				p.ambiguous("an encoded address")
			}
			return phrase, "" // encoded words
		}
		return name, strings.Join(p.words, " ")
	}
	if len(p.atoms) == 1 {
		return name, p.atoms[0]
	}
	parts, at := p.joined()
	if len(parts) == 1 {
		return name, parts[0]
	}
	p.ambiguous("words beside the address")
	rest := append(parts[:at:at], parts[at+1:]...)
	return p.reader.words(strings.Join(rest, " "), p.where), parts[at]
}

// joined joins the atoms that belong together: white space may only stand around dots and "@" (RFC 5322, 4.4). Where it
// stands elsewhere, the first part with an "@", at, is the address.
func (p *addressReader) joined() (parts []string, at int) {
	start := 0
	at = -1
	for i := range p.atoms {
		if i+1 < len(p.atoms) && (p.glued[i+1] || joins(p.atoms[i], p.atoms[i+1])) {
			continue
		}
		part := strings.Join(p.atoms[start:i+1], "")
		if at < 0 && strings.Contains(part, "@") {
			at = len(parts)
		}
		parts, start = append(parts, part), i+1
	}
	return parts, at
}

// joins tells whether two words are one address in spite of the white space between them.
func joins(a, b string) bool {
	return strings.HasSuffix(a, "@") || strings.HasSuffix(a, ".") || b[0] == '@' || b[0] == '.'
}

// comment is what the comments say, decoded.
func (p *addressReader) comment() string {
	return p.reader.words(strings.Join(p.notes, " "), p.where)
}

// phrase is the display name that was read, decoded.
func (p *addressReader) phrase() string {
	name := ""
	if len(p.words) == 1 {
		name = p.words[0]
	} else {
		out := p.scratch[:0]
		for i, w := range p.words {
			if i > 0 && !p.glued[i] {
				out = append(out, ' ')
			}
			out = append(out, w...)
		}
		name, p.scratch = p.strs.add(out), out
	}
	name = p.reader.words(name, p.where)
	if len(p.atoms) > 0 && p.atoms[0][0] == '"' {
		return name // white space inside quotes is part of it (RFC 5322, 3.2.4)
	}
	return strings.TrimSpace(name)
}

func (p *addressReader) reset() {
	p.words, p.glued, p.atoms = p.words[:0], p.glued[:0], p.atoms[:0]
	p.notes, p.angle, p.isAngle, p.space, p.at = p.notes[:0], "", false, false, false
}

func (p *addressReader) malformed(what string) {
	if p.noted["malformed_address"] == 0 { // else each octet of a long field could allocate
		p.defect("malformed_address", warning, p.where, "%s: %s", what, excerpt(p.s))
	}
}

// ambiguous notes once for each field that readers take different addresses from it.
func (p *addressReader) ambiguous(what string) {
	p.malformed(what)
	if !p.isNoted {
		p.isNoted = true
		p.defect("ambiguous_address", severe, p.where, "%s: %s", what, excerpt(p.s))
	}
}

// isOther tells whether a word without quotes is an address, and not that in the brackets once more.
func (p *addressReader) isOther(atom string) bool {
	return atom[0] != '"' && strings.Contains(atom, "@") && !strings.EqualFold(strings.Trim(atom, "'"), p.angle)
}
