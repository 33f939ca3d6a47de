package spoolsend

import (
	"strings"
	"unicode/utf8"

	"github.com/rohrpost/rohrpost/proto/mailbox"
)

// addressProblem tells what is wrong with a mailbox; empty if nothing.
func addressProblem(s string) string {
	switch {
	case mailbox.TooLong(s):
		return "is too long (RFC 5321, section 4.5.3.1)"
	case !strings.Contains(s, "@"):
		return "has no domain: write local-part@domain"
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case !mailbox.Valid(s):
		return "is not a mailbox: write local-part@domain, without display name and angle brackets"
	}
	return ""
}
