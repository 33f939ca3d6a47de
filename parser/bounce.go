package parser

import (
	"regexp"
	"strconv"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxDiagnostic is how many octets of a diagnostic text are kept.
const maxDiagnostic = 1000

// recipient reads the fields of one recipient (RFC 3464, 2.3).
func recipient(fields []*mailv1.Header) *mailv1.ReportRecipient {
	out := &mailv1.ReportRecipient{
		Fields:          fields,
		OriginalAddress: typedValue(value(fields, "Original-Recipient")),
		Address:         typedValue(value(fields, "Final-Recipient")),
		Action:          firstWord(value(fields, "Action")),
		Diagnostic:      cut(typedValue(value(fields, "Diagnostic-Code")), maxDiagnostic),
	}
	if out.Address == "" {
		out.Address = out.OriginalAddress
	}
	classify(out, firstWord(value(fields, "Status")))
	return out
}

// typedValue takes the type and the semicolon away from a typed value (RFC 3464, 2.1.2), and angle brackets.
func typedValue(s string) string {
	if _, rest, ok := strings.Cut(s, ";"); ok {
		s = rest
	}
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "<") && strings.HasSuffix(s, ">") {
		s = s[1 : len(s)-1]
	}
	return s
}

// firstWord is the first word in lower case, without a comment behind it.
func firstWord(s string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(withoutComments(s)), " ")
	return lowerASCII(word)
}

var (
	enhancedCode = regexp.MustCompile(`(?:^|[^0-9.])([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:[^0-9.]|\.?$|\.[^0-9])`)
	replyCode    = regexp.MustCompile(`(?:^|[^0-9.\[-])([245][0-9]{2})(?:[ #-]|$)`)
)

// classify fills in the codes and the category. What the remote host said tells more than the conclusion of the host that
// gave up, which is in status.
func classify(out *mailv1.ReportRecipient, status string) {
	if m := enhancedCode.FindStringSubmatch(status); m == nil {
		status = ""
	}
	if m := replyCode.FindStringSubmatch(out.Diagnostic); m != nil {
		code, err := strconv.ParseInt(m[1], 10, 32)
		if err == nil {
			out.ReplyCode = int32(code)
		}
	}
	// The last code is that of the host that was asked last: others quote it.
	for _, m := range enhancedCode.FindAllStringSubmatch(out.Diagnostic, -1) {
		if !isGeneral(m[1]) || isGeneral(status) {
			status = m[1]
		}
	}
	out.Status = status
	if out.Action == "failed" || out.Action == "delayed" || out.Action == "" && !strings.HasPrefix(status, "2.") {
		out.Category = category(status, out.Diagnostic)
	}
}

// isGeneral tells whether a status says nothing but whether it is permanent (RFC 3463, 3.1).
func isGeneral(status string) bool { return status == "" || strings.HasSuffix(status, ".0.0") }

// categories are those of enhanced status codes, without their class: RFC 3463, 3; RFC 7372; RFC 7505; the registry of
// enhanced status codes. A subject alone stands for its other codes.
var categories = map[string]mailv1.BounceCategory{
	"1": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS, "1.2": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_DOMAIN,
	"1.7": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_SENDER, "1.8": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_SENDER,
	"1.9": mailv1.BounceCategory_BOUNCE_CATEGORY_PROTOCOL, "1.10": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_DOMAIN,
	"2": mailv1.BounceCategory_BOUNCE_CATEGORY_OTHER, "2.1": mailv1.BounceCategory_BOUNCE_CATEGORY_INACTIVE_MAILBOX,
	"2.2": mailv1.BounceCategory_BOUNCE_CATEGORY_FULL, "2.3": mailv1.BounceCategory_BOUNCE_CATEGORY_TOO_LARGE,
	"2.4": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS,
	"3":   mailv1.BounceCategory_BOUNCE_CATEGORY_SYSTEM, "3.1": mailv1.BounceCategory_BOUNCE_CATEGORY_FULL,
	"3.4": mailv1.BounceCategory_BOUNCE_CATEGORY_TOO_LARGE,
	"4":   mailv1.BounceCategory_BOUNCE_CATEGORY_ROUTING, "4.5": mailv1.BounceCategory_BOUNCE_CATEGORY_SYSTEM,
	"4.7": mailv1.BounceCategory_BOUNCE_CATEGORY_EXPIRED,
	"5":   mailv1.BounceCategory_BOUNCE_CATEGORY_PROTOCOL, "5.3": mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY,
	"6": mailv1.BounceCategory_BOUNCE_CATEGORY_CONTENT,
	"7": mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY, "7.8": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
	"7.9": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.11": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
	"7.12": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.13": mailv1.BounceCategory_BOUNCE_CATEGORY_INACTIVE_MAILBOX,
	"7.14": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.17": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS,
	"7.18": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_DOMAIN,
	"7.20": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.21": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
	"7.22": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.23": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
	"7.24": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.25": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
	"7.26": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, "7.27": mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_SENDER,
	"7.29": mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION,
}

var (
	authWords   = []string{"dmarc", "spf", "dkim", "unauthenticated", "starttls", "ptr", "rdns", "authentication", "reverse"}
	authPhrases = regexp.MustCompile(`\b(dmarc|spf|dkim|unauthenticated|starttls|ptr|rdns)\b|authentication|reverse (dns|lookup)`)
)

// diagnosticPhrases are words of diagnostic texts, for those that have no code that says anything. The first that matches
// counts: by one of its words and, where there is one, by its expression, which the words keep from most texts.
var diagnosticPhrases = []struct {
	category mailv1.BounceCategory
	words    []string
	phrases  *regexp.Regexp
}{
	{mailv1.BounceCategory_BOUNCE_CATEGORY_FULL, []string{
		"quota", "mailbox full", "mailbox is full", "insufficient disk", "insufficient system", "no space",
	}, nil},
	{
		mailv1.BounceCategory_BOUNCE_CATEGORY_TOO_LARGE,
		[]string{"too large", "too big", "size"},
		regexp.MustCompile(`too (large|big)|size limit|exceeds? .*size`),
	},
	{
		mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS,
		[]string{"unknown", "not found", "invalid", "exist", "n't have", "n t have", "no longer", "no such", "no mailbox", "registered"},
		regexp.MustCompile(`(user|recipient|mailbox|address|account).{0,40}(unknown|not found|invalid|does ?n.t (exist|have)|does not exist|no longer)|` +
			`(unknown|no such|invalid) (local )?(user|recipient|mailbox|address)|no mailbox here|not a registered`),
	},
	{
		mailv1.BounceCategory_BOUNCE_CATEGORY_INACTIVE_MAILBOX,
		[]string{"disabled", "inactive", "suspended"},
		regexp.MustCompile(`(account|mailbox|user).{0,40}(disabled|inactive|suspended)`),
	},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION, authWords, authPhrases},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY, []string{
		"spam", "virus", "blacklist", "black list", "blocklist", "block list", "blocked", "reputation", "banned", "denied", "policy",
		"relay", "rate limit", "too many", "abuse", "complaints",
	}, nil},
	{
		mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_DOMAIN,
		[]string{"domain", "host", "no mx", "mail exchanger", "unrouteable"},
		regexp.MustCompile(`(domain|host).{0,60}(not found|unknown|does not exist|no valid)|no (mx|mail exchanger)|find a mail exchanger|unrouteable|unknown (host|domain)`),
	},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_EXPIRED, []string{
		"expired", "retry time", "in the queue too long", "could not be delivered for", "delayed", "giving up",
	}, nil},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_ROUTING, []string{"timeout", "timed out", "time out", "connect", "unreachable", "lookup", "loop"}, nil},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_PROTOCOL, []string{"syntax", "command", "helo", "protocol"}, nil},
	{mailv1.BounceCategory_BOUNCE_CATEGORY_CONTENT, []string{"header", "content", "attachment"}, nil},
}

// says tells whether a text in lower case has one of some words and, if there is one, the expression.
func says(text string, words []string, phrases *regexp.Regexp) bool {
	return firstOf(text, words) >= 0 && (phrases == nil || phrases.MatchString(text))
}

// category finds why a message was not delivered.
func category(status, diagnostic string) mailv1.BounceCategory {
	text := lowerASCII(diagnostic)
	c := categoryOf(status, text)
	if c == mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY && says(text, authWords, authPhrases) {
		return mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION // many hosts say 5.7.1 for anything
	}
	return c
}

func categoryOf(status, text string) mailv1.BounceCategory {
	if !isGeneral(status) {
		_, code, _ := strings.Cut(status, ".")
		if c, known := categories[code]; known {
			return c
		}
		subject, detail, _ := strings.Cut(code, ".")
		if c, known := categories[subject]; known && detail != "0" {
			return c
		}
	}
	for _, p := range diagnosticPhrases {
		if says(text, p.words, p.phrases) {
			return p.category
		}
	}
	_, code, _ := strings.Cut(status, ".")
	subject, _, _ := strings.Cut(code, ".")
	if c, known := categories[subject]; known {
		return c
	}
	return mailv1.BounceCategory_BOUNCE_CATEGORY_OTHER
}
