// Package resolver is the caching DNS resolver of the services: it asks the servers of the system or of the
// configuration, keeps their answers as long as they are good for, and answers the names of a static zone by itself.
//
// It tells apart what mail must not mix up: a name or type that does not exist ([net.DNSError] with IsNotFound) and a
// failure to find out (IsTemporary), which never bounces mail.
package resolver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/idna"
	"golang.org/x/sync/singleflight"
)

// Resolver looks names up. Names are absolute: no search list is applied. It is safe for concurrent use. Lookups return
// a bare *net.DNSError, as net.Resolver does.
type Resolver struct {
	cfg     Config
	servers []string
	zone    zone
	cache   *cache
	flights singleflight.Group
	now     func() time.Time
}

// Options are what a resolver is given by its process.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// New makes a resolver. Without servers in the configuration it takes those of /etc/resolv.conf; where there are none
// either, only the static zone can be answered and every other lookup fails as temporary.
func New(cfg Config, opts Options) (*Resolver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	z, err := newZone(cfg.Zone)
	if err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	servers := make([]string, 0, len(cfg.Servers))
	for _, server := range cfg.Servers {
		servers = append(servers, withPort(server))
	}
	if len(servers) == 0 {
		servers = systemServers("/etc/resolv.conf")
	}
	return &Resolver{cfg: cfg, servers: servers, zone: z, cache: newCache(cfg.CacheSize), now: opts.Now}, nil
}

func systemServers(path string) []string {
	conf, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil
	}
	var servers []string
	for _, server := range conf.Servers {
		servers = append(servers, net.JoinHostPort(server, conf.Port))
	}
	return servers
}

func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server
	}
	return net.JoinHostPort(strings.Trim(server, "[]"), "53")
}

// LookupTXT returns the texts of a name, the strings of each record joined without spaces (RFC 7208, section 3.3; RFC
// 6376, section 3.6.2.2).
func (r *Resolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	records, err := r.lookup(ctx, name, dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	texts := make([]string, 0, len(records))
	for _, rr := range records {
		if txt, ok := rr.(*dns.TXT); ok {
			texts = append(texts, unescape(strings.Join(txt.Txt, "")))
		}
	}
	return texts, nil
}

// LookupMX returns the mail exchangers of a domain, the preferred first, equal ones in random order (RFC 5321, section
// 5.1). A null MX is one with host "." (RFC 7505).
func (r *Resolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	records, err := r.lookup(ctx, name, dns.TypeMX)
	if err != nil {
		return nil, err
	}
	list := make([]*net.MX, 0, len(records))
	for _, rr := range records {
		if mx, ok := rr.(*dns.MX); ok {
			list = append(list, &net.MX{Host: mx.Mx, Pref: mx.Preference})
		}
	}
	//nolint:gosec // it spreads load and guards nothing
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(a, b *net.MX) int { return int(a.Pref) - int(b.Pref) })
	return list, nil
}

// LookupIPAddr returns the addresses of a host, IPv4 first. An IP address is returned as it is; localhost is the
// loopback (RFC 6761, section 6.3).
func (r *Resolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IPAddr{{IP: ip}}, nil
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return []net.IPAddr{{IP: net.IPv4(127, 0, 0, 1)}, {IP: net.IPv6loopback}}, nil
	}
	type answer struct {
		records []dns.RR
		err     error
	}
	six := make(chan answer, 1)
	go func() {
		records, err := r.lookup(ctx, host, dns.TypeAAAA)
		six <- answer{records, err}
	}()
	var four answer
	four.records, four.err = r.lookup(ctx, host, dns.TypeA)
	var addrs []net.IPAddr
	answers := []answer{four, <-six}
	for _, a := range answers {
		for _, rr := range a.records {
			switch rr := rr.(type) {
			case *dns.A:
				addrs = append(addrs, net.IPAddr{IP: rr.A})
			case *dns.AAAA:
				addrs = append(addrs, net.IPAddr{IP: rr.AAAA})
			}
		}
	}
	if len(addrs) > 0 {
		return addrs, nil
	}
	// Only where both types are known not to exist does the host have no address.
	for _, a := range answers {
		var dnsErr *net.DNSError
		if errors.As(a.err, &dnsErr) && !dnsErr.IsNotFound {
			return nil, a.err
		}
	}
	return nil, four.err
}

// LookupAddr returns the names of an IP address, each with a final dot.
func (r *Resolver) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		return nil, notFound(addr, "not an IP address")
	}
	records, err := r.lookup(ctx, name, dns.TypePTR)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(records))
	for _, rr := range records {
		if ptr, ok := rr.(*dns.PTR); ok {
			names = append(names, ptr.Ptr)
		}
	}
	return names, nil
}

// lookup answers from the zone, then from the cache, then from the servers. The records are shared: nobody changes them.
func (r *Resolver) lookup(ctx context.Context, name string, qtype uint16) ([]dns.RR, error) {
	fqdn, err := canonical(name)
	if err != nil {
		return nil, notFound(name, err.Error())
	}
	if records, ok := r.zone.answer(fqdn, qtype); ok {
		return (&entry{records: records}).result(name)
	}
	key := question{name: fqdn, qtype: qtype}
	if e, ok := r.cache.get(key, r.now()); ok {
		return e.result(name)
	}
	// Others may wait for the same answer: the caller's end must not be theirs. exchange has its own limit of time.
	shared := r.flights.DoChan(fmt.Sprintf("%d %s", qtype, fqdn), func() (any, error) {
		if e, ok := r.cache.get(key, r.now()); ok { // the flight before this one has landed since the cache was asked
			return e, nil
		}
		e, err := r.exchange(context.WithoutCancel(ctx), key)
		if err != nil {
			return nil, err
		}
		r.cache.put(key, e, r.now())
		return e, nil
	})
	select {
	case <-ctx.Done():
		return nil, &net.DNSError{
			Err: ctx.Err().Error(), Name: name, IsTemporary: true,
			IsTimeout: errors.Is(ctx.Err(), context.DeadlineExceeded), UnwrapErr: ctx.Err(),
		}
	case outcome := <-shared:
		if outcome.Err != nil {
			return nil, failed(name, outcome.Err)
		}
		return outcome.Val.(*entry).result(name)
	}
}

// canonical makes the name to ask for: ASCII, lower case, with a final dot.
func canonical(name string) (string, error) {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == '\\' || c == '"' || c == 0x7f {
			return "", errors.New("not a domain name")
		}
		if name[i] >= 0x80 {
			ascii, err := idna.Lookup.ToASCII(name)
			if err != nil {
				return "", errors.New("not a domain name")
			}
			return canonical(ascii)
		}
	}
	if _, ok := dns.IsDomainName(name); !ok || name == "" {
		return "", errors.New("not a domain name")
	}
	return strings.ToLower(dns.Fqdn(name)), nil
}

func notFound(name, reason string) error {
	return &net.DNSError{Err: reason, Name: name, IsNotFound: true}
}

// failed is a failure to find out. It is always temporary.
func failed(name string, cause error) error {
	e := &net.DNSError{Err: cause.Error(), Name: name, IsTemporary: true, UnwrapErr: cause}
	var server *serverError
	if errors.As(cause, &server) {
		e.Server = server.server
		e.Err = server.err.Error()
	}
	var netErr net.Error
	e.IsTimeout = errors.As(cause, &netErr) && netErr.Timeout()
	return e
}

// unescape gives the octets of a text that package dns holds in the notation of zone files (RFC 1035, section 5.1).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		if i+3 < len(s) && digit(s[i+1]) && digit(s[i+2]) && digit(s[i+3]) {
			out.WriteByte((s[i+1]-'0')*100 + (s[i+2]-'0')*10 + s[i+3] - '0')
			i += 3
			continue
		}
		i++
		out.WriteByte(s[i])
	}
	return out.String()
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
