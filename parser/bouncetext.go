package parser

import (
	"regexp"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxRecipients is how many recipients are read from a text.
const maxRecipients = 100

// writtenReport reads a bounce that has no machine-readable part: one whose parts lost their structure, or one in the words
// of qmail, Exim, Sendmail, Postfix, OpenSMTPD or Gmail. It is nil where the message is no bounce or names nobody.
func (r *reader) writtenReport() *mailv1.Report {
	if !r.isBounce() {
		return nil
	}
	out := &mailv1.Report{Type: "delivery-status", Guessed: true}
	if start := r.statusFields(); start >= 0 {
		groups, _ := r.groups([]byte(r.out.Text[start:]), "") // what follows the fields is text for people
		perRecipient(out, groups)
		out.Recipients = firstRecipients(out.Recipients)
		return out
	}
	out.Recipients = r.writtenRecipients()
	if len(out.Recipients) == 0 {
		return nil
	}
	return out
}

// fromText adds what the text for people says of recipients of whom the machine-readable part says no more than that it
// failed.
func (r *reader) fromText(out *mailv1.Report) {
	var written []*mailv1.ReportRecipient
	for _, one := range out.Recipients[:min(len(out.Recipients), maxRecipients)] {
		if one.GetDiagnostic() != "" || !isGeneral(one.GetStatus()) || strings.HasPrefix(one.GetStatus(), "2") {
			continue
		}
		if written == nil {
			if written = r.writtenRecipients(); len(written) == 0 {
				return
			}
		}
		if w := find(written, one.GetAddress()); w != nil {
			one.Diagnostic = w.GetDiagnostic()
			classify(one, one.GetStatus())
		}
	}
}

// find finds the recipient with an address.
func find(all []*mailv1.ReportRecipient, address string) *mailv1.ReportRecipient {
	for _, one := range all {
		if strings.EqualFold(one.GetAddress(), address) {
			return one
		}
	}
	return nil
}

// statusFields finds the fields of a delivery status in the text, -1 if there are none.
func (r *reader) statusFields() int {
	start := 0
	for line := range strings.Lines(r.out.Text) {
		name, value, ok := strings.Cut(line[:min(len(line), 200)], ":")
		if ok && strings.Contains(value, ";") && (strings.EqualFold(name, "Reporting-MTA") ||
			strings.EqualFold(name, "Original-Recipient") || strings.EqualFold(name, "Final-Recipient")) {
			return start
		}
		start += len(line)
	}
	return -1
}

// firstRecipients leaves out the groups of fields that are about no recipient: the text goes on behind the status.
func firstRecipients(all []*mailv1.ReportRecipient) []*mailv1.ReportRecipient {
	for i, one := range all {
		if one.GetAddress() == "" || i == maxRecipients {
			return all[:i]
		}
	}
	return all
}

// isBounce tells whether a mail system sent the message (RFC 3834, 2; RFC 5321, 4.5.5).
func (r *reader) isBounce() bool {
	if path := value(r.out.Headers, "Return-Path"); path == "<>" || strings.EqualFold(path, "<MAILER-DAEMON>") {
		return true
	}
	if value(r.out.Headers, "X-Failed-Recipients") != "" {
		return true
	}
	for _, a := range r.out.From {
		local, _, _ := strings.Cut(a.GetAddress(), "@")
		if local = lowerASCII(local); local == "mailer-daemon" || local == "postmaster" {
			return true
		}
	}
	return false
}

// bounceWords are how a bounce begins, in lower case.
var bounceWords = []string{
	"not be delivered", "able to deliver", "not yet been delivered", "failed permanently", "has been delayed",
	"attempting to deliver", "undeliver", "fatal errors", "delivery problems", "delivery failed", "addresses failed",
	"address failed", "address(es) failed",
}

// delayWords are words of a warning, in lower case.
var delayWords = []string{"has been delayed", "not yet been delivered", "warning message only", "will be retried"}

// firstOf is where the first of some words ends in a text, -1 if none is there.
func firstOf(text string, words []string) int {
	first, end := len(text), -1
	for _, w := range words {
		if i := strings.Index(text[:min(first+len(w), len(text))], w); i >= 0 && i < first {
			first, end = i, i+len(w)
		}
	}
	return end
}

// isBounceEnd tells whether a line is the one before the copy of the message, or part of the copy.
func isBounceEnd(line string) bool {
	line = strings.TrimLeft(line, " ")
	if line == "" || strings.IndexByte("-BbRr", line[0]) < 0 {
		return false
	}
	line = lowerASCII(line)
	if strings.HasPrefix(line, "--") {
		return firstOf(line, []string{"copy", "original", "header", "returned"}) >= 0
	}
	return strings.HasPrefix(line, "below is a copy") || strings.HasPrefix(line, "received: ")
}

// bounceAddress matches a line that names a recipient, and what follows on the line.
var bounceAddress = regexp.MustCompile(`^[ \t]*(?:<([^<>@ \t]+@[^<>@ \t]+)>|([^<>@: \t]+@[^<>@:, \t]+)):?(?:[ \t]+(.*))?$`)

// writtenRecipients reads the recipients that a text names on lines of their own, each with what is said of it behind.
func (r *reader) writtenRecipients() []*mailv1.ReportRecipient {
	lower := lowerASCII(r.out.Text)
	begin := firstOf(lower, bounceWords)
	if begin < 0 {
		return nil
	}
	action := "failed"
	if firstOf(lower, delayWords) >= 0 {
		action = "delayed"
	}
	var out []*mailv1.ReportRecipient
	var said strings.Builder
	finish := func() {
		if len(out) > 0 {
			last := out[len(out)-1]
			last.Diagnostic = cut(strings.TrimSpace(said.String()), maxDiagnostic)
			classify(last, "")
		}
		said.Reset()
	}
	for line := range strings.Lines(r.out.Text[begin:]) {
		line = strings.TrimRight(line, " \t\r\n")
		if isBounceEnd(line) {
			break
		}
		var m []string
		if strings.IndexByte(line, '@') > 0 {
			m = bounceAddress.FindStringSubmatch(line)
		}
		named := m != nil && (m[1] != "" || m[3] == "" || strings.Contains(line, m[2]+":"))
		// The host's words may name the same address again.
		if named && len(out) < maxRecipients && find(out, m[1]+m[2]) == nil {
			finish()
			out = append(out, &mailv1.ReportRecipient{Address: m[1] + m[2], Action: action})
			line = m[3]
		}
		if said.Len() < 2*maxDiagnostic {
			said.WriteString(strings.TrimSpace(line) + " ")
		}
	}
	if len(out) == 0 {
		for _, a := range r.addresses(value(r.out.Headers, "X-Failed-Recipients"), place{offset: unknownOffset}) {
			out = append(out, &mailv1.ReportRecipient{Address: a.GetAddress(), Action: action})
		}
		out = out[:min(len(out), maxRecipients)]
	}
	finish()
	return out
}
