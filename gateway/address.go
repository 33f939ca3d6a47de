package gateway

import (
	"slices"
	"strings"

	"github.com/rohrpost/rohrpost/proto/mailbox"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// The refusals of addresses.
var (
	errSenderSyntax     = smtpreply.New(501, "5.1.7", "Malformed sender address")
	errSenderLong       = smtpreply.New(501, "5.1.7", "Sender address too long")
	errRecipientSyntax  = smtpreply.New(501, "5.1.3", "Malformed recipient address")
	errRecipientLong    = smtpreply.New(501, "5.1.3", "Recipient address too long")
	errRepeated         = smtpreply.New(501, "5.5.4", "Parameter given twice")
	errRecipientNoHost  = smtpreply.New(550, "5.1.3", "Recipient address needs a domain")
	errSenderNeedsUTF8  = smtpreply.New(553, "5.6.7", "Non-ASCII sender address needs SMTPUTF8")
	errRecipentNeedUTF8 = smtpreply.New(553, "5.6.7", "Non-ASCII recipient address needs SMTPUTF8")
)

// path returns the mailbox in the angle brackets of a MAIL or RCPT line, as the client wrote it, without a source route
// (RFC 5321, appendix C), and the parameters behind it. The library's own parser takes quotes away, so that two different mailboxes look alike.
func path(line string) (address, parameters string, ok bool) {
	_, s, ok := strings.Cut(line, ":")
	if !ok {
		return "", "", false
	}
	s = strings.TrimLeft(s, " \t")
	bracket := strings.HasPrefix(s, "<")
	if bracket {
		s = s[1:]
	}
	if strings.HasPrefix(s, "@") {
		if _, s, ok = strings.Cut(s, ":"); !ok {
			return "", "", false
		}
	}
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '>' && bracket || (c == ' ' || c == '\t') && !bracket):
			return s[:i], s[i+1:], true
		}
	}
	return s, "", !bracket && !quoted
}

// repeated tells whether a parameter is given twice, of which the library would take the last. (RFC 5321, section 4.1.1.11;
// RFC 3461, section 4.)
func repeated(parameters string) bool {
	var seen []string
	for p := range strings.FieldsSeq(parameters) {
		keyword, _, _ := strings.Cut(strings.ToUpper(p), "=")
		if slices.Contains(seen, keyword) {
			return true
		}
		seen = append(seen, keyword)
	}
	return false
}

// checkSender tells what is wrong with a reverse-path; the null reverse-path is right (case F2).
func checkSender(address string, utf8OK bool) error {
	switch {
	case address == "":
		return nil
	case mailbox.TooLong(address):
		return errSenderLong
	case !utf8OK && !isASCII(address):
		return errSenderNeedsUTF8
	case !mailbox.Valid(address):
		return errSenderSyntax
	}
	return nil
}

// checkRecipient tells what is wrong with a forward-path. `postmaster` without a domain, which RFC 5321 section
// 4.1.1.3 allows, must have been completed before.
func checkRecipient(address string, utf8OK bool) error {
	switch {
	case mailbox.TooLong(address):
		return errRecipientLong
	case !strings.Contains(address, "@"):
		return errRecipientNoHost
	case !utf8OK && !isASCII(address):
		return errRecipentNeedUTF8
	case !mailbox.Valid(address):
		return errRecipientSyntax
	}
	return nil
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
