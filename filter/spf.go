package filter

import (
	"context"
	"errors"
	"net"
	"strings"

	"blitiri.com.ar/go/spf"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// checkSPF tells whether the client may send for the sender's domain (RFC 7208). It returns one result.
func (f *Filter) checkSPF(ctx context.Context, in Input) []authResult {
	ctx, span := f.tracer.Start(ctx, "filter.spf", trace.WithAttributes(messageID(in)))
	defer span.End()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.SPF.Timeout)
	defer cancel()

	reception := in.Envelope.GetReception()
	res := f.spf(ctx, reception.GetClientIp(), reception.GetHelo(), in.Envelope.GetSender())
	span.SetAttributes(attribute.String("rohrpost.filter.result", res.result))
	return []authResult{res}
}

func (f *Filter) spf(ctx context.Context, clientIP, helo, sender string) authResult {
	res := authResult{method: "spf"}
	if clientIP == "" {
		res.result, res.detail = resultNone, "made by Rohrpost itself, there is no client"
		return res
	}
	ip := net.ParseIP(clientIP)
	if ip == nil {
		res.result, res.detail = resultPermError, "the client's address cannot be read"
		return res
	}
	identity := spfIdentity(sender, helo)
	if sender == "" {
		res.props = []property{{"smtp.helo", helo}}
	} else {
		res.props = []property{{"smtp.mailfrom", sender}}
	}
	if !validDomain(domainOf(identity)) { // RFC 7208, section 4.3
		res.result, res.detail = resultNone, "no domain to check"
		return res
	}
	result, err := spf.CheckHostWithSender(ip, helo, identity, spf.WithContext(ctx), spf.WithResolver(f.lookup))
	if ctx.Err() != nil {
		// Whatever came out: the library takes a failed look-up of ptr for "no match", and goes on to -all.
		res.result, res.detail = resultTempError, "the look-ups took too long"
		return res
	}
	res.result = string(result)
	if err != nil {
		res.detail = err.Error()
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		res.detail = dns.Err + ": " + dns.Name // without the inner error, which names our servers
	}
	return res
}

// spfIdentity is the mailbox that is checked: postmaster at the HELO name for the null reverse-path, and postmaster
// where there is no local part (RFC 7208, sections 2.4 and 4.3).
func spfIdentity(sender, helo string) string {
	local, domain := "postmaster", helo
	if sender != "" {
		domain = domainOf(sender)
		if l := strings.TrimSuffix(strings.TrimSuffix(sender, domain), "@"); l != "" {
			local = l
		}
	}
	// The library splits at the first @; one in a quoted local part must not move the domain.
	return strings.ReplaceAll(local, "@", "=") + "@" + domain
}
