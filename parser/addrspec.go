package parser

import (
	"net/netip"
	"strings"
)

// AddressClass is what the standards say of the syntax of an address. A greater one is worse.
type AddressClass int

const (
	// AddressPlain is a dot-atom at a domain of two labels or more: any mail system takes it.
	AddressPlain AddressClass = iota
	// AddressSMTP is valid in SMTP too, but unusual: a quoted local part, an address literal, a top-level domain (RFC 5321, 4.1.2).
	AddressSMTP
	// AddressCommented has comments or folds around it, which only a header field may have (RFC 5322, 3.2.2).
	AddressCommented
	// AddressObsolete is of a form that must be read and not be written (RFC 5322, 4.4).
	AddressObsolete
	// AddressHeader is valid in a header field (RFC 5322, 3.4.1) and not in SMTP: too long, or at no domain of SMTP's.
	AddressHeader
	// AddressInvalid is no address.
	AddressInvalid
)

// The limits of RFC 5321, 4.5.3.1, and of labels (RFC 1035, 2.3.4), in octets.
const (
	maxLocalPart = 64
	maxDomain    = 255
	maxAddrSpec  = 254 // 256 with the angle brackets
	maxLabel     = 63
)

// ClassifyAddress tells what the standards say of `local@domain`. It asks no DNS, and letters above ASCII are valid in the
// parts where RFC 6531, 3.3 and RFC 6532, 3.2 have them.
func ClassifyAddress(s string) AddressClass {
	p := specReader{s: s}
	if !p.local() || !p.domain() || p.i < len(s) {
		return AddressInvalid
	}
	if p.localSize > maxLocalPart || p.domainSize > maxDomain || p.localSize+1+p.domainSize > maxAddrSpec {
		p.atLeast(AddressHeader)
	}
	return p.class
}

// specReader reads an addr-spec. Its methods return false where it is none.
type specReader struct {
	s     string
	i     int
	class AddressClass
	// localSize and domainSize are how many octets the parts have without comments and folds. The parts themselves would be
	// put together anew with each label.
	localSize, domainSize int
}

func (p *specReader) atLeast(c AddressClass) { p.class = max(p.class, c) }

func (p *specReader) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// local reads the local part and the "@".
func (p *specReader) local() bool {
	around, ok := p.cfws()
	if !ok {
		return false
	}
	if around {
		p.atLeast(AddressCommented)
	}
	for words, quoted := 1, false; ; words++ {
		start := p.i
		if p.peek() == '"' {
			quoted = true
			p.atLeast(AddressSMTP)
			if !p.enclosed('"', 1) {
				return false
			}
		} else if !p.atom(isAtext) {
			return false
		}
		p.localSize += p.i - start
		if words > 1 && quoted {
			p.atLeast(AddressObsolete)
		}
		if around, ok = p.cfws(); !ok {
			return false
		}
		switch {
		case around && (p.peek() == '@' || p.peek() == '.'):
			p.atLeast(AddressObsolete)
		case around:
			return false
		}
		switch c := p.peek(); {
		case c == '@' && p.i < len(p.s):
			p.i++
			return true
		case c != '.':
			return false
		}
		p.localSize++
		p.i++
		if around, ok = p.cfws(); !ok {
			return false
		}
		if around {
			p.atLeast(AddressObsolete)
		}
	}
}

// domain reads the domain up to the end.
func (p *specReader) domain() bool {
	around, ok := p.cfws()
	if !ok {
		return false
	}
	if around {
		p.atLeast(AddressObsolete)
	}
	if p.peek() == '[' {
		return p.literal() && p.trailing()
	}
	for labels := 1; ; labels++ {
		label, ok := p.label()
		if !ok {
			return false
		}
		around, ok := p.cfws()
		if !ok {
			return false
		}
		if p.i == len(p.s) {
			if around {
				p.atLeast(AddressCommented)
			}
			if labels == 1 || strings.Trim(label, "0123456789") == "" {
				p.atLeast(AddressSMTP) // RFC 5321 has them, the DNS hardly
			}
			return true
		}
		if !p.dot(around) {
			return false
		}
	}
}

// label reads a label of the domain.
func (p *specReader) label() (label string, ok bool) {
	start := p.i
	if !p.atom(isAtext) {
		return "", false
	}
	label = p.s[start:p.i]
	p.domainSize += len(label)
	if label[0] == '-' || label[len(label)-1] == '-' {
		return "", false
	}
	if len(label) > maxLabel || strings.IndexFunc(label, func(r rune) bool { return r < 0x80 && r != '-' && !isLetter(byte(r)) && !isDigit(byte(r)) }) >= 0 {
		p.atLeast(AddressHeader)
	}
	return label, true
}

// dot reads the dot between two labels with what stands behind it; around is whether something stands before it.
func (p *specReader) dot(around bool) bool {
	if p.peek() != '.' {
		return false
	}
	p.domainSize++
	p.i++
	after, ok := p.cfws()
	if around || after {
		p.atLeast(AddressObsolete)
	}
	return ok
}

func (p *specReader) trailing() bool {
	around, ok := p.cfws()
	if around {
		p.atLeast(AddressCommented)
	}
	return ok && p.i == len(p.s)
}

// atom reads the octets that are allowed, at least one.
func (p *specReader) atom(allowed func(byte) bool) bool {
	start := p.i
	for p.i < len(p.s) && allowed(p.s[p.i]) {
		p.i++
	}
	return p.i > start
}

// isAtext tells whether an octet may stand in an atom (RFC 5322, 3.2.3; RFC 6532, 3.2).
func isAtext(c byte) bool {
	return isLetter(c) || isDigit(c) || c >= 0x80 || strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

// isObsolete tells whether an octet may stand in obsolete text: controls but NUL, white space and line ends (RFC 5322, 4.1).
func isObsolete(c byte) bool {
	return c == 0x7f || c > 0 && c < ' ' && c != '\t' && c != '\r' && c != '\n'
}

// enclosed reads from an octet to the one that closes it: a quoted string (RFC 5322, 3.2.4), a comment (3.2.2), which may
// hold others, or a domain literal (3.4.1).
func (p *specReader) enclosed(end byte, depth int) bool {
	if depth > maxNesting {
		return false
	}
	ok := true
	for p.i++; ok && p.i < len(p.s); {
		switch c := p.s[p.i]; {
		case c == end:
			p.i++
			return true
		case c == '(' && end == ')':
			ok = p.enclosed(end, depth+1)
		case c == '[' && end == ']':
			return false
		case c == '\\':
			if end == ']' {
				p.atLeast(AddressHeader)
			}
			ok = p.pair()
		case isSpace(c) || c == '\r':
			ok = p.fws()
		default:
			ok = p.text(c)
		}
	}
	return false
}

// text reads an octet of what is enclosed.
func (p *specReader) text(c byte) bool {
	switch {
	case c == 0 || c == '\n':
		return false
	case isObsolete(c):
		p.atLeast(AddressObsolete)
	}
	p.i++
	return true
}

// pair reads a quoted pair (RFC 5322, 3.2.1; 4.1).
func (p *specReader) pair() bool {
	if p.i+1 >= len(p.s) || p.s[p.i+1] >= 0x80 {
		return false
	}
	if c := p.s[p.i+1]; c < ' ' && c != '\t' || c == 0x7f {
		p.atLeast(AddressObsolete)
	}
	p.i += 2
	return true
}

// cfws reads comments and folding white space (RFC 5322, 3.2.2), and tells whether there was any.
func (p *specReader) cfws() (some, ok bool) {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case isSpace(c) || c == '\r':
			if !p.fws() {
				return true, false
			}
		case c == '(':
			if !p.enclosed(')', 1) {
				return true, false
			}
		default:
			return some, true
		}
		some = true
	}
	return some, true
}

// fws reads folding white space: white space, and line ends with white space behind them. More than one line end is
// obsolete (RFC 5322, 3.2.2; 4.2).
func (p *specReader) fws() bool {
	for folds := 0; p.i < len(p.s); {
		switch c := p.s[p.i]; {
		case isSpace(c):
			p.i++
		case c == '\r':
			if p.i+2 >= len(p.s) || p.s[p.i+1] != '\n' || !isSpace(p.s[p.i+2]) {
				return false
			}
			if folds++; folds > 1 {
				p.atLeast(AddressObsolete)
			}
			p.i += 3
		default:
			return true
		}
	}
	return true
}

// literal reads a domain literal (RFC 5322, 3.4.1), which SMTP knows as an address literal only (RFC 5321, 4.1.3).
func (p *specReader) literal() bool {
	start := p.i
	if !p.enclosed(']', 1) {
		return false
	}
	p.domainSize = p.i - start
	p.atLeast(literalClass(p.s[start+1 : p.i-1]))
	return true
}

func literalClass(s string) AddressClass {
	v6 := len(s) > 5 && strings.EqualFold(s[:5], "IPv6:")
	if v6 {
		s = s[5:]
	}
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" || v6 == ip.Is4() {
		return AddressHeader
	}
	return AddressSMTP
}
