package resolver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// udpSize is how large an answer by UDP may be, in octets: what passes without fragments (RFC 6891, section 6.2.3 leaves
// it to us; the value is that of the DNS flag day 2020).
const udpSize = 1232

// maxKept is how large a reply is kept, in octets: the cache is bounded by the number of answers, and strangers choose
// what is looked up. Honest replies about mail are smaller.
const maxKept = 4096

// maxAliases is how many CNAMEs are followed within an answer.
const maxAliases = 16

// serverError says which server failed.
type serverError struct {
	server string
	err    error
}

func (e *serverError) Error() string { return e.server + ": " + e.err.Error() }

func (e *serverError) Unwrap() error { return e.err }

var errNoServers = errors.New("no DNS server is known; set resolver.servers")

// exchange asks the servers in turn until one of them knows. Its time is bounded by Timeout × Rounds × servers × 2.
func (r *Resolver) exchange(ctx context.Context, q question) (*entry, error) {
	err := errNoServers
	for range r.cfg.Rounds {
		for _, server := range r.servers {
			var e *entry
			if e, err = r.ask(ctx, server, q); err == nil {
				return e, nil
			}
			err = &serverError{server: server, err: err}
		}
	}
	return nil, err
}

// ask asks one server by UDP, then by TCP where the answer did not fit (RFC 7766, section 5).
func (r *Resolver) ask(ctx context.Context, server string, q question) (*entry, error) {
	query := new(dns.Msg)
	query.SetQuestion(q.name, q.qtype)
	query.SetEdns0(udpSize, false)
	reply, err := r.roundTrip(ctx, "udp", server, query)
	if err == nil && reply.Truncated {
		reply, err = r.roundTrip(ctx, "tcp", server, query)
	}
	if err != nil {
		return nil, err
	}
	switch reply.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
		e := r.read(reply, q)
		if reply.Len() > maxKept {
			e.ttl = 0
		}
		return e, nil
	default: // SERVFAIL, REFUSED and the like: this server can't tell
		return nil, fmt.Errorf("answered %s", dns.RcodeToString[reply.Rcode])
	}
}

func (r *Resolver) roundTrip(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	client := &dns.Client{Net: network, Timeout: r.cfg.Timeout}
	reply, _, err := client.ExchangeContext(ctx, query, server)
	if err != nil {
		return nil, err
	}
	// An answer to another question is no answer (RFC 5452, section 4.2).
	if len(reply.Question) != 1 || reply.Question[0].Qtype != query.Question[0].Qtype ||
		!strings.EqualFold(reply.Question[0].Name, query.Question[0].Name) {
		return nil, errors.New("answered another question")
	}
	return reply, nil
}

// read takes the records of a question from a reply, following aliases, and says how long they are good for.
func (r *Resolver) read(reply *dns.Msg, q question) *entry {
	name, ttl := q.name, r.cfg.MaxTTL
	for range maxAliases {
		var records []dns.RR
		alias := ""
		for _, rr := range reply.Answer {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			if rr.Header().Rrtype == q.qtype {
				records = append(records, rr)
				ttl = min(ttl, ttlOf(rr.Header().Ttl))
			} else if cname, ok := rr.(*dns.CNAME); ok {
				alias = cname.Target
				ttl = min(ttl, ttlOf(cname.Hdr.Ttl))
			}
		}
		if len(records) > 0 {
			return &entry{records: records, ttl: ttl}
		}
		if alias == "" {
			break
		}
		name = alias
	}
	return &entry{absent: reply.Rcode == dns.RcodeNameError, ttl: min(ttl, r.negativeTTL(reply))}
}

// negativeTTL is how long it may be remembered that there is nothing: the lesser of the SOA's TTL and its MINIMUM; not at
// all without an SOA (RFC 2308, section 5).
func (r *Resolver) negativeTTL(reply *dns.Msg) time.Duration {
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(r.cfg.MaxNegativeTTL, ttlOf(soa.Hdr.Ttl), ttlOf(soa.Minttl))
		}
	}
	return 0
}

// ttlOf reads a TTL; one with the highest bit set counts as 0 (RFC 2181, section 8).
func ttlOf(seconds uint32) time.Duration {
	if seconds > 1<<31-1 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
