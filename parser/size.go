package parser

import (
	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The most that numbers, and the tags and lengths of strings, add to the octets of a message's strings.
const (
	fewFields  = 64  // of up to five fields
	manyFields = 256 // of up to twenty
	perString  = 8
)

// sizeAtMost is a bound of how large a result is in protobuf. It costs little: proto.Size goes through maps by reflection.
func sizeAtMost(m *mailv1.ParsedMessage) int {
	n := manyFields + len(m.GetSubject()) + len(m.GetMessageId()) + len(m.GetText()) + len(m.GetHtml()) +
		proto.Size(m.GetReport()) + proto.Size(m.GetList()) + headersAtMost(m.GetHeaders())
	for _, list := range [][]*mailv1.Address{m.GetFrom(), m.GetTo(), m.GetCc(), m.GetBcc(), m.GetReplyTo(), {m.GetSender()}} {
		for _, a := range list {
			n += fewFields + len(a.GetName()) + len(a.GetAddress()) + len(a.GetGroup()) + len(a.GetComment())
		}
	}
	for _, list := range [][]string{m.GetInReplyTo(), m.GetReferences(), m.GetKeywords(), m.GetAttachments(), m.GetInlines()} {
		for _, s := range list {
			n += perString + len(s)
		}
	}
	for _, h := range m.GetReceived() {
		n += manyFields + len(h.GetFrom()) + len(h.GetAddress()) + len(h.GetBy()) + len(h.GetVia()) + len(h.GetWith()) + len(h.GetId()) + len(h.GetFor())
	}
	for _, d := range m.GetDefects() {
		n += fewFields + len(d.GetKind()) + len(d.GetPart()) + len(d.GetDetail())
	}
	for _, p := range m.GetParts() {
		n += partAtMost(p)
	}
	return n
}

func headersAtMost(headers []*mailv1.Header) int {
	n := 0
	for _, h := range headers {
		n += fewFields + len(h.GetName()) + len(h.GetValue()) + len(h.GetRaw())
	}
	return n
}

func partAtMost(p *mailv1.Part) int {
	n := manyFields + len(p.GetPath()) + len(p.GetType()) + len(p.GetDisposition()) + len(p.GetFilename()) + len(p.GetContentId()) +
		len(p.GetCharset()) + len(p.GetEncoding()) + len(p.GetSha256()) + headersAtMost(p.GetHeaders())
	for name, value := range p.GetParams() {
		n += 3*perString + len(name) + len(value)
	}
	for _, child := range p.GetParts() {
		n += perString + partAtMost(child)
	}
	return n
}
