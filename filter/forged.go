package filter

import "strings"

// maxForged is how many starts are removed one by one: each is an edit, which is kept with the message and looked at for
// each of its fields.
const maxForged = 16

// everyForged is the start of every value: all Authentication-Results fields go, whoever wrote them.
var everyForged = []string{""}

// oddlyForged finds Authentication-Results fields whose id stands behind a comment or in quotes (RFC 8601, section 2.2),
// where a removal by the start of the value would not see that it is ours, and returns how each starts. Honest servers
// don't write their id in this way, so that all such fields are taken for forged; the RFC (section 5) allows to remove
// more than is ours. Where there are too many, it returns everyForged.
func oddlyForged(fields []field) []string {
	var starts []string
	seen := map[string]bool{}
	for _, f := range named(fields, fieldAuthenticationResults) {
		value := f.unfolded()
		if value == "" || idStart(value[0]) {
			continue
		}
		// An edit is text: it can't hold octets that are no UTF-8.
		if start := first(asciiStart(value), 200); !seen[start] {
			seen[start] = true
			starts = append(starts, start)
		}
		if len(starts) > maxForged {
			return everyForged
		}
	}
	return starts
}

func idStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._", c) >= 0
}

// asciiStart is the longest start of s that is printable ASCII.
func asciiStart(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return s[:i]
		}
	}
	return s
}
