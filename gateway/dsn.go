package gateway

import (
	"strings"

	"github.com/emersion/go-smtp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// maxEnvelopeID is the longest ENVID, decoded. (RFC 3461, section 4.4.)
const maxEnvelopeID = 100

// maxOriginalRecipient is the longest ORCPT, with its type and as the client wrote it. (RFC 3461, section 4.2.)
const maxOriginalRecipient = 500

var (
	errLongEnvelopeID        = smtpreply.New(501, "5.5.4", "ENVID is longer than 100 characters")
	errLongOriginalRecipient = smtpreply.New(501, "5.5.4", "ORCPT is longer than 500 characters")
)

// longOriginalRecipient tells whether a RCPT command's parameters have too long an ORCPT.
func longOriginalRecipient(parameters string) bool {
	for p := range strings.FieldsSeq(parameters) {
		if keyword, value, _ := strings.Cut(p, "="); strings.EqualFold(keyword, "ORCPT") && len(value) > maxOriginalRecipient {
			return true
		}
	}
	return false
}

// dsnReturn is the RET parameter. (RFC 3461, section 4.3.)
func dsnReturn(r smtp.DSNReturn) mailv1.DsnReturn {
	switch r {
	case smtp.DSNReturnFull:
		return mailv1.DsnReturn_DSN_RETURN_FULL
	case smtp.DSNReturnHeaders:
		return mailv1.DsnReturn_DSN_RETURN_HEADERS
	}
	return mailv1.DsnReturn_DSN_RETURN_UNSPECIFIED
}

var dsnConditions = map[smtp.DSNNotify]mailv1.DsnNotify{
	smtp.DSNNotifyNever:   mailv1.DsnNotify_DSN_NOTIFY_NEVER,
	smtp.DSNNotifySuccess: mailv1.DsnNotify_DSN_NOTIFY_SUCCESS,
	smtp.DSNNotifyFailure: mailv1.DsnNotify_DSN_NOTIFY_FAILURE,
	smtp.DSNNotifyDelayed: mailv1.DsnNotify_DSN_NOTIFY_DELAY,
}

// recipient is a forward-path with the NOTIFY and ORCPT parameters. (RFC 3461, sections 4.1 and 4.2.) Notifications of success
// go only to those to whom DSN was announced.
func recipient(address string, opts *smtp.RcptOptions, notifies bool) *mailv1.Recipient {
	r := &mailv1.Recipient{Address: address}
	for _, condition := range opts.Notify {
		if condition != smtp.DSNNotifySuccess || notifies {
			r.Notify = append(r.Notify, dsnConditions[condition])
		}
	}
	if len(r.Notify) == 0 && len(opts.Notify) > 0 {
		r.Notify = append(r.Notify, mailv1.DsnNotify_DSN_NOTIFY_NEVER) // none would ask for those of failure
	}
	if opts.OriginalRecipient != "" {
		r.OriginalRecipient = strings.ToLower(string(opts.OriginalRecipientType)) + ";" + strings.ToValidUTF8(opts.OriginalRecipient, "?")
	}
	return r
}
