package deliver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// extensions are what a peer offered, by keyword in upper case, with the parameters.
type extensions map[string]string

func (e extensions) has(keyword string) bool {
	_, ok := e[keyword]
	return ok
}

// envelope sends MAIL and RCPT. It is false where no recipient is left to send the content to.
func (tx *transaction) envelope(ctx context.Context) (bool, error) {
	if ok, err := tx.fits(ctx); !ok || err != nil {
		return false, err
	}
	reply, err := tx.conn.Cmd(tx.limits.Mail, tx.mailCommand())
	if tx.sent > 0 && (err != nil && !isTimeout(err) || err == nil && reply.Code == 421) {
		return false, errStale // its peer had enough of it: that says nothing about this message
	}
	if err != nil {
		return false, tx.broken("MAIL", err)
	}
	if reply.Code/100 != 2 {
		tx.refused(reply)
		return false, nil
	}
	var accepted []*target
	for i, t := range tx.targets {
		reply, err := tx.conn.Cmd(tx.limits.Rcpt, tx.rcptCommand(t))
		if err != nil {
			// Those that were refused keep their own reply (case C7); for the others nothing was sent.
			tx.targets = append(accepted, tx.targets[i:]...)
			return false, tx.broken("RCPT", err)
		}
		if reply.Code/100 == 2 {
			accepted = append(accepted, t)
			continue
		}
		t.remote = tx.host
		t.set(rcptStatus(reply.Code), refusal(reply))
		if reply.Code == 421 { // the peer is closing (RFC 5321, section 3.8)
			tx.targets = append(accepted, tx.targets[i+1:]...)
			tx.refused(reply)
			return false, nil
		}
	}
	tx.targets = accepted
	return len(accepted) > 0, nil
}

// rcptStatus is statusOf, but for 552, which old servers say where there are too many recipients. (RFC 5321, section
// 4.5.3.1.10.)
func rcptStatus(code int) mailv1.ResultStatus {
	if code == 552 {
		return temporary
	}
	return statusOf(code)
}

// fits ends the targets that this peer can't serve.
func (tx *transaction) fits(ctx context.Context) (bool, error) {
	if limit, err := strconv.ParseInt(tx.ext["SIZE"], 10, 64); err == nil && limit > 0 && tx.size() > limit {
		tx.end(permanent, newReply(552, "5.3.4", "The message is too big for the next hop"))
		return false, nil
	}
	env := tx.a.Envelope
	if !sendable(env.GetSender()) {
		tx.end(permanent, newReply(553, "5.1.7", "The sender's address can't be sent"))
		return false, nil
	}
	var left []*target
	for _, t := range tx.targets {
		switch {
		case t.address == "" || !sendable(t.address):
			t.set(permanent, newReply(553, "5.1.3", "The recipient's address can't be sent"))
		case !tx.ext.has("SMTPUTF8") && !ascii(t.address):
			t.set(permanent, noUTF8())
		default:
			left = append(left, t)
		}
	}
	tx.targets = left
	if tx.ext.has("SMTPUTF8") || len(left) == 0 {
		return len(left) > 0, nil
	}
	// The peer has no SMTPUTF8: nothing in the envelope or the header section may need it (case G1, RFC 6531, section
	// 3.4). The content is looked at only where its client said SMTPUTF8.
	needed := !ascii(env.GetSender())
	if !needed && env.GetSmtputf8() {
		var err error
		if needed, err = tx.a.headerNeedsUTF8(ctx); err != nil {
			tx.a.spoil(tx.targets, err)
			return false, err
		}
	}
	if needed {
		tx.end(permanent, noUTF8())
		return false, nil
	}
	return true, nil
}

func noUTF8() *mailv1.Reply {
	return newReply(550, "5.6.7", "The next hop does not support SMTPUTF8, which the message needs")
}

// size is the number of octets that SIZE declares: the content and what we put before it. (RFC 1870, section 5.)
func (tx *transaction) size() int64 {
	size := tx.a.Size
	for _, e := range tx.a.Edits {
		if p := e.GetPrepend(); p != nil {
			size += int64(len(p.GetName()) + len(p.GetValue()) + len(": \r\n"))
		}
	}
	return size
}

func (tx *transaction) mailCommand() string {
	env := tx.a.Envelope
	var sb strings.Builder
	sb.WriteString("MAIL FROM:<" + env.GetSender() + ">")
	if tx.ext.has("SIZE") {
		sb.WriteString(" SIZE=" + strconv.FormatInt(tx.size(), 10))
	}
	// Where the peer has no 8BITMIME the content goes as it is: we never re-encode mail (case G3).
	if tx.ext.has("8BITMIME") && env.GetBodyType() != mailv1.BodyType_BODY_TYPE_7BIT {
		sb.WriteString(" BODY=8BITMIME")
	}
	if tx.ext.has("SMTPUTF8") && tx.needsUTF8() {
		sb.WriteString(" SMTPUTF8")
	}
	if tx.ext.has("DSN") {
		switch env.GetDsnReturn() {
		case mailv1.DsnReturn_DSN_RETURN_FULL:
			sb.WriteString(" RET=FULL")
		case mailv1.DsnReturn_DSN_RETURN_HEADERS:
			sb.WriteString(" RET=HDRS")
		case mailv1.DsnReturn_DSN_RETURN_UNSPECIFIED:
		}
		if id := env.GetEnvelopeId(); id != "" {
			sb.WriteString(" ENVID=" + xtext(id))
		}
	}
	return sb.String()
}

func (tx *transaction) needsUTF8() bool {
	if tx.a.Envelope.GetSmtputf8() || !ascii(tx.a.Envelope.GetSender()) {
		return true
	}
	for _, t := range tx.targets {
		if !ascii(t.address) {
			return true
		}
	}
	return false
}

func (tx *transaction) rcptCommand(t *target) string {
	var sb strings.Builder
	sb.WriteString("RCPT TO:<" + t.address + ">")
	if !tx.ext.has("DSN") {
		return sb.String()
	}
	rcpt := tx.a.Envelope.GetRecipients()[t.recipient]
	var notify []string
	for _, n := range rcpt.GetNotify() {
		if n != mailv1.DsnNotify_DSN_NOTIFY_UNSPECIFIED {
			notify = append(notify, strings.TrimPrefix(n.String(), "DSN_NOTIFY_"))
		}
	}
	if len(notify) > 0 {
		sb.WriteString(" NOTIFY=" + strings.Join(notify, ","))
	}
	if kind, address, ok := strings.Cut(rcpt.GetOriginalRecipient(), ";"); ok && atom(kind) && ascii(address) {
		sb.WriteString(" ORCPT=" + kind + ";" + xtext(address))
	}
	return sb.String()
}

// xtext encodes what stands in a parameter. (RFC 3461, section 4.)
func xtext(s string) string {
	var sb strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < '!' || c > '~' || c == '+' || c == '=' {
			fmt.Fprintf(&sb, "+%02X", c)
		} else {
			sb.WriteByte(c)
		}
	}
	return sb.String()
}

func atom(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-'
	})
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// sendable tells whether an address can stand between angle brackets without ending them: it has no control characters,
// and blanks and angle brackets in a quoted string only. (RFC 5321, section 4.1.2.)
func sendable(address string) bool {
	quoted := false
	for i := 0; i < len(address); i++ {
		switch c := address[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
			if i == len(address) || address[i] < ' ' {
				return false
			}
		case !quoted && (c == ' ' || c == '<' || c == '>'):
			return false
		}
	}
	return !quoted
}

// headerNeedsUTF8 tells whether the header section, edits applied, has octets outside ASCII.
func (a *attempt) headerNeedsUTF8(ctx context.Context) (bool, error) {
	content, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = content.Close() }() // only read
	in := bufio.NewReader(content)
	for start := true; ; {
		line, err := in.ReadSlice('\n')
		if start && blank(line) {
			return false, nil
		}
		if !ascii(string(line)) {
			return true, nil
		}
		start = len(line) > 0 && line[len(line)-1] == '\n'
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return false, err
		}
	}
}
