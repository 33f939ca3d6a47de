// Package pattern is the one syntax by which the configuration names domains, addresses and destinations.
//
//   - everything
//     example.org          the domain itself
//     *.example.org        every domain below it, at any depth
//     ann@example.org      one address
//     ann@*                one local part at any domain
//     ann@*.example.org    one local part at every domain below
//
// ASCII letters are compared without case, in local parts too: two mailboxes that differ in case alone should not be told
// apart by policy. Other letters are compared as they are, so that no look-alike matches. A domain given as a destination is matched like an address without local part.
package pattern

import (
	"fmt"
	"strings"
)

// Pattern is a parsed pattern. The zero Pattern matches nothing. It is immutable.
type Pattern struct {
	text   string
	local  string // empty: any local part, or none
	domain string // empty: any; starts with ".": below it
}

// Parse reads a pattern. The error names what is wrong with it.
func Parse(s string) (Pattern, error) {
	p := Pattern{text: s}
	domain := lower(strings.TrimSpace(s))
	if at := strings.LastIndexByte(domain, '@'); at >= 0 {
		p.local, domain = domain[:at], domain[at+1:]
		if p.local == "" || strings.ContainsAny(p.local, "* ") {
			return Pattern{}, fmt.Errorf("pattern %q: the part before @ must be one mailbox name", s)
		}
	}
	switch {
	case domain == "":
		return Pattern{}, fmt.Errorf("pattern %q: the domain is missing (use * for all)", s)
	case domain == "*":
		return p, nil
	case strings.HasPrefix(domain, "*."):
		p.domain = domain[1:]
	default:
		p.domain = domain
	}
	if strings.ContainsAny(strings.TrimPrefix(domain, "*."), "* @") {
		return Pattern{}, fmt.Errorf("pattern %q: * may stand alone or before the first dot only", s)
	}
	return p, nil
}

// MustParse is Parse for patterns that stand in the program. It panics on an error.
func MustParse(s string) Pattern {
	p, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return p
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Domain is what the pattern says of domains: "*", "*.example.org" or "example.org", in lower case. It is empty for the zero
// Pattern.
func (p Pattern) Domain() string {
	switch {
	case p.text == "":
		return ""
	case p.domain == "":
		return "*"
	case strings.HasPrefix(p.domain, "."):
		return "*" + p.domain
	default:
		return p.domain
	}
}

// Local is the one local part that the pattern names, in lower case; empty where it names all.
func (p Pattern) Local() string { return p.local }

// UnmarshalText reads a pattern from a configuration file.
func (p *Pattern) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))
	return err
}

// MarshalText writes the pattern as it was written.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Match tells whether the pattern names an address (local@domain) or a bare domain.
func (p Pattern) Match(address string) bool {
	if p.text == "" {
		return false
	}
	local, domain := "", lower(address)
	if at := strings.LastIndexByte(domain, '@'); at >= 0 {
		local, domain = domain[:at], domain[at+1:]
	}
	if p.local != "" && p.local != local {
		return false
	}
	if strings.HasPrefix(p.domain, ".") {
		return strings.HasSuffix(domain, p.domain) && len(domain) > len(p.domain)
	}
	return p.domain == "" || p.domain == domain
}

// lower folds ASCII letters alone: Unicode has letters whose lower case is ASCII, such as the Kelvin sign.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}
