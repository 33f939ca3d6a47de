package gateway

import (
	"net/netip"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/mailbox"
)

// protocolName is the name for the `with` clause of Received. (RFC 3848; RFC 6531, section 4.3.)
func protocolName(extended, utf8OK, tls, auth bool) string {
	if !extended {
		return "SMTP"
	}
	name := "ESMTP"
	if utf8OK {
		name = "UTF8SMTP"
	}
	if tls {
		name += "S"
	}
	if auth {
		name += "A"
	}
	return name
}

// receivedField makes the trace field of RFC 5321, section 4.4. `for` is given with one recipient only, so that none
// learns of another (section 7.2).
func receivedField(id string, env *mailv1.Envelope, client netip.Addr, at time.Time) *mailv1.Edit {
	rec := env.GetReception()
	literal := mailbox.Literal(client)
	from := rec.GetHelo()
	// HELO is the client's word. What is no domain and no literal would break the field's grammar.
	if !mailbox.IsDomain(from, env.GetSmtputf8()) && !mailbox.IsLiteral(from) {
		from = literal
	}
	field := make([]byte, 0, 256)
	field = append(append(append(append(field, "from "...), from...), " ("...), literal...)
	field = append(append(append(append(field, ")\r\n\tby "...), rec.GetGateway()...), " (Rohrpost) with "...), rec.GetProtocol()...)
	field = append(append(field, "\r\n\tid "...), id...)
	if rcpts := env.GetRecipients(); len(rcpts) == 1 {
		field = append(append(append(field, "\r\n\tfor <"...), rcpts[0].GetAddress()...), '>')
	}
	field = at.UTC().AppendFormat(append(field, ";\r\n\t"...), "Mon, 2 Jan 2006 15:04:05 -0700")
	return &mailv1.Edit{Kind: &mailv1.Edit_Prepend{
		Prepend: &mailv1.HeaderField{Name: "Received", Value: string(field)},
	}}
}
