package deliver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxDiagnostic is how much of a reply stands in a notification, in octets.
const maxDiagnostic = 400

// maxContent is how long a notification may be, in octets, and maxContents how long those of one attempt together: they
// travel in one result.
const (
	maxContent  = 512 << 10
	maxContents = 1 << 20
)

// leastHeader is how much of the header section is worth more than what the hosts said, in octets.
const leastHeader = 4 << 10

// report writes one notification. (RFC 6522, RFC 3464.)
type report struct {
	host    string
	now     time.Time
	attempt *attempt
	about   []*target // all have failed, or none
	success bool
	back    returned
	brief   bool            // without what the hosts said
	sb      strings.Builder // the notification, as far as it is written
}

// notification writes all of it, in at most limit octets as long as a recipient can be told in a hundredth of them. The
// same results of the same attempt give the same Message-ID.
func (r *report) notification(limit int) *Notification {
	content := r.write()
	if len(content) > limit && r.back.full != nil {
		r.back.full = nil
		content = r.write()
	}
	if over := len(content) - limit; over > 0 && over > len(r.back.header)-leastHeader {
		r.brief = true
		content = r.write()
	}
	if over := len(content) - limit; over > 0 {
		room := max(len(r.back.header)-over, 0)
		r.back.header = r.back.header[:bytes.LastIndexByte(r.back.header[:room], '\n')+1]
		content = r.write()
	}
	env := r.attempt.Envelope
	out := &mailv1.Envelope{
		Recipients: []*mailv1.Recipient{{
			Address: env.GetSender(),
			// A notification never asks for one itself. (RFC 3461, section 6.1.)
			Notify: []mailv1.DsnNotify{mailv1.DsnNotify_DSN_NOTIFY_NEVER},
		}},
		BodyType: mailv1.BodyType_BODY_TYPE_7BIT,
		Smtputf8: !ascii(env.GetSender()),
	}
	if !ascii(content) {
		out.BodyType = mailv1.BodyType_BODY_TYPE_8BITMIME
	}
	return &Notification{Envelope: out, Content: []byte(content)}
}

func (r *report) write() string {
	r.sb.Reset()
	human := r.human()
	boundary := r.boundary(human)
	r.header(boundary)
	r.part(boundary, "text/plain; charset=utf-8", human)
	r.part(boundary, "message/delivery-status", r.status())
	switch {
	case r.back.full != nil:
		r.part(boundary, "message/rfc822", string(r.back.full))
	case len(r.back.header) > 0:
		r.part(boundary, "text/rfc822-headers", string(r.back.header))
	}
	r.sb.WriteString("\r\n--" + boundary + "--\r\n")
	return r.sb.String()
}

func (r *report) line(name, value string) { r.sb.WriteString(name + ": " + value + "\r\n") }

func (r *report) header(boundary string) {
	r.line("From", "Mail Delivery System <MAILER-DAEMON@"+r.domain()+">")
	r.line("To", "<"+oneLine(r.attempt.Envelope.GetSender(), 320)+">")
	if r.success {
		r.line("Subject", "Your message has been delivered")
	} else {
		r.line("Subject", "Your message could not be delivered")
	}
	r.line("Date", rfc5322Date(r.now))
	r.line("Message-ID", "<"+r.id("message")+"@"+r.domain()+">")
	r.line("Auto-Submitted", "auto-replied") // RFC 3834, section 5
	r.line("MIME-Version", "1.0")
	r.sb.WriteString("Content-Type: multipart/report; report-type=delivery-status;\r\n\tboundary=\"" + boundary + "\"\r\n\r\n")
	r.sb.WriteString("This is a MIME message.\r\n")
}

// domain is the host name as it can stand in an address.
func (r *report) domain() string {
	if strings.Contains(r.host, ":") && !strings.HasPrefix(r.host, "[") {
		return "[" + r.host + "]"
	}
	return r.host
}

// part writes a body part. Where the text has octets outside ASCII, that is said. (RFC 2045, section 6.2.)
func (r *report) part(boundary, kind, text string) {
	r.sb.WriteString("\r\n--" + boundary + "\r\nContent-Type: " + kind + "\r\n")
	if !ascii(text) {
		r.sb.WriteString("Content-Transfer-Encoding: 8bit\r\n")
	}
	r.sb.WriteString("\r\n" + text)
}

// id derives from what the notification is about.
func (r *report) id(purpose string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s\x00%d", purpose, r.host, r.attempt.MessageID, r.attempt.Destination, r.attempt.Number)
	for _, t := range r.about {
		_, _ = fmt.Fprintf(h, "\x00%d", t.recipient) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// boundary is a string that occurs in no part.
func (r *report) boundary(human string) string {
	for i := 0; ; i++ {
		b := "=_" + r.id("boundary"+strconv.Itoa(i))
		if !strings.Contains(human, b) && !strings.Contains(string(r.back.header), b) && !strings.Contains(string(r.back.full), b) {
			return b
		}
	}
}

// human writes the text for people. (RFC 6522, section 3.)
func (r *report) human() string {
	var sb strings.Builder
	sb.WriteString("This is the mail system at " + r.host + ".\r\n\r\n")
	if r.success {
		sb.WriteString("You asked to be told: your message has reached the recipients below, or is on its way to them.\r\n")
	} else {
		sb.WriteString("Your message could not be delivered to the recipients below.\r\n")
	}
	if r.back.full != nil {
		sb.WriteString("It is attached.\r\n")
	} else if len(r.back.header) > 0 {
		sb.WriteString("Its header is attached.\r\n")
	}
	for _, t := range r.about {
		sb.WriteString("\r\n<" + oneLine(t.address, 256) + ">\r\n    " + reason(t) + "\r\n")
		if text := diagnostic(t.reply); text != "" && !r.brief {
			who := "The last answer was"
			if t.remote != "" {
				who = "The host " + t.remote + " said"
			}
			sb.WriteString("    " + who + ": " + text + "\r\n")
		}
	}
	return sb.String()
}

func reason(t *target) string {
	switch t.status {
	case delivered:
		if t.remote != "" {
			return "It was passed on. You may not be told what became of it."
		}
		return "It was delivered."
	case permanent:
		return "It was refused for good."
	case unknown:
		return "It may have been delivered, but no answer was received in time."
	default:
		return "It could not be delivered in time."
	}
}

// status writes the part for machines. (RFC 3464, section 2.)
func (r *report) status() string {
	var sb strings.Builder
	line := func(name, value string) { sb.WriteString(name + ": " + value + "\r\n") }
	env := r.attempt.Envelope
	if id := env.GetEnvelopeId(); id != "" {
		line("Original-Envelope-Id", oneLine(id, 100))
	}
	line("Reporting-MTA", "dns; "+r.host)
	if !r.attempt.Received.IsZero() && r.attempt.Received.Unix() != 0 {
		line("Arrival-Date", rfc5322Date(r.attempt.Received))
	}
	for _, t := range r.about {
		sb.WriteString("\r\n")
		if kind, address, ok := strings.Cut(env.GetRecipients()[t.recipient].GetOriginalRecipient(), ";"); ok && atom(kind) {
			line("Original-Recipient", kind+"; "+utf8Xtext(address))
		}
		if ascii(t.address) {
			line("Final-Recipient", "rfc822; "+oneLine(t.address, 320))
		} else {
			line("Final-Recipient", "utf-8; "+utf8Xtext(t.address)) // RFC 6533, section 3
		}
		line("Action", action(t))
		line("Status", statusCode(t))
		if t.remote != "" && !r.brief {
			line("Remote-MTA", "dns; "+t.remote)
		}
		if text := diagnostic(t.reply); text != "" && !r.brief {
			line("Diagnostic-Code", "smtp; "+fold(toASCII(text)))
		}
		if r.attempt.Number > 0 {
			line("Last-Attempt-Date", rfc5322Date(r.now))
		}
	}
	return sb.String()
}

// action is what was done for a recipient. A next hop that takes the message and writes no notifications of its own is the
// last that we can tell of. (RFC 3464, section 2.3.3; RFC 3461, section 5.2.2; case F3.)
func action(t *target) string {
	switch {
	case t.status != delivered:
		return "failed"
	case t.remote != "":
		return "relayed"
	default:
		return "delivered"
	}
}

// statusCode is the enhanced status of a recipient that ended: the reply's own where it is final, else that of a
// message whose time is up. (RFC 3463.)
func statusCode(t *target) string {
	code := t.reply.GetEnhancedCode()
	switch {
	case t.status == delivered:
		if enhancedCode.MatchString(code) && code[0] == '2' {
			return code
		}
		return "2.0.0"
	case t.status != permanent:
		return "4.4.7"
	case enhancedCode.MatchString(code) && code[0] == '5':
		return code
	default:
		return "5.0.0"
	}
}

// diagnostic writes a reply in one line.
func diagnostic(reply *mailv1.Reply) string {
	if reply.GetCode() == 0 {
		return ""
	}
	text := strconv.Itoa(int(reply.GetCode()))
	if code := reply.GetEnhancedCode(); code != "" {
		text += " " + oneLine(code, 11)
	}
	return cut(text+" "+oneLine(reply.GetText(), maxDiagnostic), maxDiagnostic)
}

// oneLine makes text fit into a line of at most n octets.
func oneLine(s string, n int) string {
	return cut(strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case unprintable(c):
			return '?'
		default:
			return c
		}
	}, s), n)
}

func toASCII(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= utf8.RuneSelf {
			return '?'
		}
		return c
	}, s)
}

// fold breaks a value at blanks into lines of about 76 octets. (RFC 5322, section 2.2.3.)
func fold(s string) string {
	var sb strings.Builder
	room := 76 - len("Diagnostic-Code: smtp; ")
	for i, word := range strings.Fields(s) {
		if i > 0 {
			if len(word)+1 > room {
				sb.WriteString("\r\n\t")
				room = 68
			} else {
				sb.WriteByte(' ')
				room--
			}
		}
		sb.WriteString(word)
		room -= len(word)
	}
	return sb.String()
}

// utf8Xtext writes an address in ASCII. (RFC 6533, section 3: utf-8-addr-xtext.)
func utf8Xtext(s string) string {
	s = cut(s, 256)
	var sb strings.Builder
	for _, c := range s {
		if c <= ' ' || c == 0x7f || c == '\\' && !ascii(s) || c >= utf8.RuneSelf {
			fmt.Fprintf(&sb, `\x{%X}`, c)
		} else {
			sb.WriteRune(c)
		}
	}
	return sb.String()
}
