package spoolsend

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// protocol is our word in the `with` clause of Received. None is registered for gRPC; the grammar allows any atom.
// (RFC 5321, section 4.4: Attdl-Protocol.)
const protocol = "GRPC"

// submission makes what the spool is given, but for the content.
func (s *Server) submission(
	ctx context.Context, id spool.ID, now time.Time, req *sendv1.SendMessageRequest, m mail,
) spool.Submission {
	client := clientAddr(ctx)
	env := &mailv1.Envelope{
		Sender: req.GetSender(),
		Reception: &mailv1.Reception{
			ReceivedAt: timestamppb.New(now), Protocol: protocol, Gateway: s.opts.Hostname,
			AuthenticatedUser: s.opts.Caller(ctx), Tls: tlsOf(ctx),
		},
		Smtputf8: m.utf8, ReleaseAt: req.GetReleaseAt(),
	}
	if client.IsValid() {
		env.Reception.ClientIp = client.String()
	}
	if m.eightBit {
		env.BodyType = mailv1.BodyType_BODY_TYPE_8BITMIME
	}
	for _, address := range req.GetRecipients() {
		env.Recipients = append(env.Recipients, &mailv1.Recipient{Address: address})
	}
	return spool.Submission{
		ID: id, Envelope: env, Edits: []*mailv1.Edit{received(id, env, client, now)}, Trace: traceOf(ctx),
		Deadline: time.Now().Add(submitDeadline),
	}
}

// received makes the trace field of RFC 5321, section 4.4. `for` is given with one recipient only, so that none learns of
// another (section 7.2).
func received(id spool.ID, env *mailv1.Envelope, client netip.Addr, at time.Time) *mailv1.Edit {
	var b strings.Builder
	if client.IsValid() {
		literal := "[" + client.String() + "]"
		if client.Is6() {
			literal = "[IPv6:" + client.String() + "]"
		}
		b.WriteString("from " + literal + " (" + literal + ")\r\n\t")
	}
	b.WriteString("by " + env.GetReception().GetGateway() + " (Rohrpost) with " + protocol)
	b.WriteString("\r\n\tid " + id.String())
	if rcpts := env.GetRecipients(); len(rcpts) == 1 {
		b.WriteString("\r\n\tfor <" + rcpts[0].GetAddress() + ">")
	}
	b.WriteString(";\r\n\t" + at.UTC().Format("Mon, 2 Jan 2006 15:04:05 -0700"))
	return &mailv1.Edit{Kind: &mailv1.Edit_Prepend{
		Prepend: &mailv1.HeaderField{Name: "Received", Value: b.String()},
	}}
}

// clientAddr is the address that a call came from, not valid where that is none of IP.
func clientAddr(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// tlsOf tells the TLS version and cipher suite of a call; empty without TLS.
func tlsOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return ""
	}
	version := strings.Replace(tls.VersionName(info.State.Version), "TLS ", "TLSv", 1)
	return version + " " + tls.CipherSuiteName(info.State.CipherSuite)
}
