package resolver

import (
	"fmt"
	"net"
	"strings"

	"github.com/miekg/dns"
)

// zone holds the static records by name, then type.
type zone map[string]map[uint16][]dns.RR

// newZone reads the records of the configuration. The error names the record.
func newZone(records []Record) (zone, error) {
	z := make(zone)
	for i, record := range records {
		rr, err := record.parse()
		if err != nil {
			return nil, fmt.Errorf("resolver.zone[%d]: %s %s: %w", i, record.Name, record.Type, err)
		}
		name := rr.Header().Name
		if z[name] == nil {
			z[name] = make(map[uint16][]dns.RR)
		}
		z[name][rr.Header().Rrtype] = append(z[name][rr.Header().Rrtype], rr)
	}
	return z, nil
}

// answer returns the records of a name. It is known where the name stands in the zone; without records of the type that
// is NODATA (RFC 2308, section 2.2).
func (z zone) answer(fqdn string, qtype uint16) (records []dns.RR, known bool) {
	types, known := z[fqdn]
	return types[qtype], known
}

func (r Record) parse() (dns.RR, error) {
	name := r.Name
	if reverse, err := dns.ReverseAddr(name); err == nil && strings.EqualFold(r.Type, "PTR") {
		name = reverse
	}
	fqdn, err := canonical(name)
	if err != nil {
		return nil, fmt.Errorf("the name %q is %w", r.Name, err)
	}
	header := func(t uint16) dns.RR_Header { return dns.RR_Header{Name: fqdn, Rrtype: t, Class: dns.ClassINET} }
	switch strings.ToUpper(r.Type) {
	case "TXT":
		return &dns.TXT{Hdr: header(dns.TypeTXT), Txt: []string{strings.ReplaceAll(r.Value, `\`, `\\`)}}, nil
	case "MX":
		return r.parseMX(header(dns.TypeMX))
	case "A":
		if ip := net.ParseIP(r.Value).To4(); ip != nil {
			return &dns.A{Hdr: header(dns.TypeA), A: ip}, nil
		}
		return nil, fmt.Errorf("%q is not an IPv4 address", r.Value)
	case "AAAA":
		if ip := net.ParseIP(r.Value); ip != nil && ip.To4() == nil {
			return &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: ip}, nil
		}
		return nil, fmt.Errorf("%q is not an IPv6 address", r.Value)
	case "PTR":
		host, err := canonical(r.Value)
		if err != nil {
			return nil, fmt.Errorf("%q is %w", r.Value, err)
		}
		return &dns.PTR{Hdr: header(dns.TypePTR), Ptr: host}, nil
	default:
		return nil, fmt.Errorf("type %q is not one of TXT, MX, A, AAAA and PTR", r.Type)
	}
}

func (r Record) parseMX(header dns.RR_Header) (dns.RR, error) {
	mx := &dns.MX{Hdr: header}
	var host string
	if n, err := fmt.Sscanf(r.Value, "%d %s", &mx.Preference, &host); err != nil || n != 2 {
		return nil, fmt.Errorf("%q is not a preference and a host, such as `10 mail.example.org`", r.Value)
	}
	fqdn, err := canonical(host)
	if err != nil {
		return nil, fmt.Errorf("%q is %w", host, err)
	}
	mx.Mx = fqdn
	return mx, nil
}
