package deliver

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Short names of what is set often.
const (
	temporary = mailv1.ResultStatus_RESULT_STATUS_TEMPORARY
	permanent = mailv1.ResultStatus_RESULT_STATUS_PERMANENT
	unknown   = mailv1.ResultStatus_RESULT_STATUS_UNKNOWN
	delivered = mailv1.ResultStatus_RESULT_STATUS_DELIVERED
	untried   = mailv1.ResultStatus_RESULT_STATUS_NOT_ATTEMPTED
)

// enhancedCode is an enhanced status code. (RFC 3463, section 2.)
var enhancedCode = regexp.MustCompile(`^[245]\.[0-9]{1,3}\.[0-9]{1,3}$`)

func newReply(code int32, enhanced, text string) *mailv1.Reply {
	return &mailv1.Reply{Code: code, EnhancedCode: enhanced, Text: text}
}

// cutShort is the reply of an attempt that got no permit.
func cutShort() *mailv1.Reply {
	return newReply(451, "4.3.0", "The attempt was stopped before delivery")
}

func (r RejectRoute) reply() *mailv1.Reply {
	reply := newReply(550, "5.7.1", "Delivery is not permitted")
	if r.Code != 0 {
		reply.Code = int32(r.Code)
	}
	if r.Enhanced != "" {
		reply.EnhancedCode = r.Enhanced
	}
	if r.Text != "" {
		reply.Text = r.Text
	}
	return reply
}

// maxTexts is how many octets of replies an attempt tells in all: its result travels as one.
const maxTexts = 256 << 10

// shorten cuts the texts of many replies.
func shorten(targets []*target) {
	limit := max(maxTexts/max(len(targets), 1), 100)
	for _, t := range targets {
		if r := t.reply; len(r.GetText()) > limit {
			t.reply = newReply(r.GetCode(), r.GetEnhancedCode(), cut(r.GetText(), limit))
		}
	}
}

// unprintable tells what must not stand in a reply's text.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// cut shortens s to n octets, never inside a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// dialReply puts into words why a next hop could not be reached. It is always temporary: a server failure of the DNS
// says nothing about the message (case E2), nor does a host that is away.
func dialReply(err error) *mailv1.Reply {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return newReply(451, "4.4.4", "The name of the next hop is not known")
	case errors.As(err, &dns):
		return newReply(451, "4.4.3", "The name of the next hop could not be looked up")
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return newReply(451, "4.4.1", "Connecting to the next hop timed out")
	case errors.Is(err, syscall.ECONNREFUSED):
		return newReply(451, "4.4.1", "The next hop refused the connection")
	default:
		return newReply(451, "4.4.1", "The next hop could not be reached")
	}
}

// brokenReply puts into words how a conversation broke off, and where.
func brokenReply(where string, err error) *mailv1.Reply {
	if isTimeout(err) {
		return newReply(451, "4.4.2", "The next hop did not answer in time: "+where)
	}
	return newReply(451, "4.4.2", "The connection to the next hop was lost: "+where)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// diskReply puts into words why a folder could not be written. The path stays in the log: the text may reach strangers.
func diskReply(err error) *mailv1.Reply {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return newReply(452, "4.3.1", "The mailbox's disk is full")
	case errors.Is(err, syscall.EDQUOT):
		return newReply(452, "4.2.2", "The mailbox is full")
	default:
		return newReply(451, "4.2.0", "The mailbox could not be written")
	}
}

// splitAddress splits a mailbox at its last @.
func splitAddress(address string) (local, domain string) {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return address[:at], address[at+1:]
	}
	return address, ""
}
