// Package mailbox knows the syntax of mailboxes and domains: RFC 5321, section 4.1.2, with the UTF-8 of RFC 6531, section
// 3.3. What takes mail in checks with it, so that every edge takes the same.
package mailbox

import (
	"net/netip"
	"strings"
	"unicode/utf8"
)

// The limits of RFC 5321, sections 4.5.3.1.1 to 4.5.3.1.3, in octets.
const (
	maxLocalPart = 64
	maxDomain    = 255
	maxPath      = 254 // 256 with the angle brackets
)

// TooLong tells whether an address, or one of its two parts, is longer than RFC 5321 allows.
func TooLong(address string) bool {
	at := strings.LastIndexByte(address, '@')
	return len(address) > maxPath || at > maxLocalPart || len(address)-at-1 > maxDomain
}

// Valid tells whether s is a mailbox, local-part@domain, of valid UTF-8. It does not look at the length.
func Valid(s string) bool {
	at := strings.LastIndexByte(s, '@')
	if at < 1 || !utf8.ValidString(s) {
		return false
	}
	local, domain := s[:at], s[at+1:]
	if !isDotString(local) && !isQuotedString(local) {
		return false
	}
	return IsDomain(domain, true) || IsLiteral(domain)
}

func isDotString(s string) bool {
	for _, atom := range strings.Split(s, ".") {
		if atom == "" || strings.IndexFunc(atom, func(r rune) bool { return !isAtext(r) }) >= 0 {
			return false
		}
	}
	return true
}

func isAtext(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80 ||
		strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
}

func isQuotedString(s string) bool {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c < ' ' || c == 0x7f:
			return false
		case c == '\\':
			i++
			if i == len(s) || s[i] < ' ' || s[i] >= 0x7f {
				return false
			}
		}
	}
	return true
}

// IsDomain tells whether s is a domain of letters, digits and hyphens. Underscores are let through, since hosts that use them send
// mail. With utf8OK it may hold U-labels.
func IsDomain(s string, utf8OK bool) bool {
	if s == "" || len(s) > maxDomain {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' ||
				utf8OK && r >= 0x80 && r != utf8.RuneError
			if !ok {
				return false
			}
		}
	}
	return true
}

// IsLiteral tells whether s is an address literal such as [192.0.2.1] and [IPv6:2001:db8::1]. (RFC 5321, section 4.1.3.)
func IsLiteral(s string) bool {
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return false
	}
	s = s[1 : len(s)-1]
	if len(s) > 5 && strings.EqualFold(s[:5], "IPv6:") {
		addr, err := netip.ParseAddr(s[5:])
		return err == nil && addr.Is6() && addr.Zone() == ""
	}
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is4()
}

// Literal is the address literal of an address.
func Literal(addr netip.Addr) string {
	if addr.Is4() {
		return "[" + addr.String() + "]"
	}
	return "[IPv6:" + addr.WithZone("").String() + "]"
}
