package filter

import (
	"context"
	"errors"
	"net"
	"strings"
)

// Resolver asks the DNS. *net.Resolver is one. A name or type that does not exist is a *net.DNSError with IsNotFound in
// the error's chain, or an empty answer without error; every other error counts as an outage (case E2). All methods may
// be called concurrently and return when ctx ends.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

// lookup gives the libraries answers that they read aright. They recognise only a bare *net.DNSError and take every
// error that is not marked as temporary for a permanent one, even the end of a context; and they ask for names that no
// DNS can have.
type lookup struct{ resolver Resolver }

// LookupTXT asks for texts.
func (l lookup) LookupTXT(ctx context.Context, name string) ([]string, error) {
	if !validDomain(name) {
		return nil, notFound(name)
	}
	txts, err := l.resolver.LookupTXT(ctx, name)
	return txts, dnsError(ctx, name, err)
}

// LookupMX asks for mail exchangers.
func (l lookup) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	if !validDomain(name) {
		return nil, notFound(name)
	}
	mxs, err := l.resolver.LookupMX(ctx, name)
	return mxs, dnsError(ctx, name, err)
}

// LookupIPAddr asks for addresses.
func (l lookup) LookupIPAddr(ctx context.Context, name string) ([]net.IPAddr, error) {
	if !validDomain(name) {
		return nil, notFound(name)
	}
	ips, err := l.resolver.LookupIPAddr(ctx, name)
	return ips, dnsError(ctx, name, err)
}

// LookupAddr asks for the names of an address.
func (l lookup) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	names, err := l.resolver.LookupAddr(ctx, addr)
	return names, dnsError(ctx, addr, err)
}

func dnsError(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	var e *net.DNSError
	if errors.As(err, &e) && e.IsNotFound && !e.IsTimeout && !e.IsTemporary && ctx.Err() == nil {
		return notFound(name)
	}
	return &net.DNSError{Err: "no answer from the DNS", Name: name, IsTemporary: true, UnwrapErr: err}
}

func notFound(name string) error {
	return &net.DNSError{Err: "no such name", Name: name, IsNotFound: true}
}

// validDomain tells whether the DNS can have a name: labels of 1 to 63 octets, at most 253 in all, a final dot allowed
// (RFC 1035, section 2.3.4), and more than one label (RFC 7208, section 4.3).
func validDomain(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if len(name) > 253 || !strings.Contains(name, ".") || strings.HasPrefix(name, "[") {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// domainOf returns what stands behind the last @, or "".
func domainOf(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return address[at+1:]
	}
	return ""
}
