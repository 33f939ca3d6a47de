package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Accept is the section `accept`: whose mail anybody may bring.
type Accept struct {
	// Domains are those that we accept mail for from everybody, as patterns (example.org, *.example.org).
	Domains []pattern.Pattern `yaml:"domains"`
	// Recipients are the addresses in those domains that exist, as patterns. Where neither Recipients nor RecipientsFile
	// nor Directory is given, all exist.
	Recipients []pattern.Pattern `yaml:"recipients"`
	// RecipientsFile names a file with more of Recipients, one a line; lines that start with # are skipped. It is read
	// again once it has changed.
	RecipientsFile string `yaml:"recipients_file"`
	// Directory is the host:port of a DirectoryService, which is asked for what the lists don't know.
	Directory string `yaml:"directory"`
	// DirectoryCache is how long its answers are believed.
	DirectoryCache DirectoryCache `yaml:"directory_cache"`
}

func (a Accept) faults() (errs []error) {
	if _, _, err := net.SplitHostPort(a.Directory); a.Directory != "" && err != nil {
		errs = append(errs, fmt.Errorf("gateway.accept.directory %q is not an address: give host:port", a.Directory))
	}
	if len(a.Domains) == 0 && (len(a.Recipients) > 0 || a.RecipientsFile != "" || a.Directory != "") {
		errs = append(errs, errors.New("gateway.accept.domains is empty, so that no recipient is looked for: give your domains"))
	}
	return append(errs, a.DirectoryCache.faults()...)
}

// Relay is the section `relay`: who may send to any domain. Users who have authenticated may too.
type Relay struct {
	// Networks are those whose clients may. Default: loopback.
	Networks []netip.Prefix `yaml:"networks"`
	// Certificates are the names of clients with a certificate of tls.client_ca that may, as patterns of a DNS name in it
	// (*.hosts.example.org).
	Certificates []pattern.Pattern `yaml:"certificates"`
}

// The refusals of policy.
var (
	errRelayOnly    = smtpreply.New(550, "5.7.1", "You may not send mail here")
	errRelayDenied  = smtpreply.New(550, "5.7.1", "Relaying denied")
	errRouted       = smtpreply.New(550, "5.7.1", "Addresses with a route in them are not accepted")
	errNoSuchUser   = smtpreply.New(550, "5.1.1", "No such recipient here")
	errNoDirectory  = smtpreply.New(451, "4.3.0", "Recipient can't be checked now, try again later")
	errTooManyRcpts = smtpreply.New(452, "4.5.3", "Too many recipients, send the rest in another transaction")
)

// recipients are the lists of accept at work.
type recipients struct {
	accept    Accept
	file      *fileCache[[]pattern.Pattern] // nil without a file
	directory *directory                    // nil without one
}

func newRecipients(accept Accept, directory Directory, warn func(error)) (*recipients, error) {
	r := &recipients{accept: accept}
	if directory != nil {
		r.directory = newDirectory(directory, accept.DirectoryCache)
	}
	if accept.RecipientsFile == "" {
		return r, nil
	}
	var err error
	r.file, err = newFileCache([]string{accept.RecipientsFile}, func() ([]pattern.Pattern, error) {
		return loadPatterns(accept.RecipientsFile)
	}, warn)
	if err != nil {
		return nil, fmt.Errorf("gateway.accept.recipients_file: %w", err)
	}
	return r, nil
}

// loadPatterns reads a file of patterns.
func loadPatterns(path string) ([]pattern.Pattern, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the configuration names it
	if err != nil {
		return nil, err
	}
	var list []pattern.Pattern
	lines := bufio.NewScanner(bytes.NewReader(data))
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		p, err := pattern.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		list = append(list, p)
	}
	return list, lines.Err()
}

// accepted tells whether mail for a domain is accepted from everybody.
func (r *recipients) accepted(domain string) bool { return matches(r.accept.Domains, domain) }

// resolve returns the addresses that get the mail for one of an accepted domain, or why there is none.
func (r *recipients) resolve(ctx context.Context, address string) ([]string, error) {
	if len(r.accept.Recipients) == 0 && r.file == nil && r.directory == nil {
		return []string{address}, nil
	}
	if matches(r.accept.Recipients, address) || r.file != nil && matches(r.file.get(), address) {
		return []string{address}, nil
	}
	if r.directory == nil {
		return nil, errNoSuchUser
	}
	entry, err := r.directory.lookup(ctx, address)
	if err != nil {
		return nil, errNoDirectory.Because(err)
	}
	if !entry.Known {
		return nil, errNoSuchUser
	}
	if len(entry.Aliases) == 0 {
		return []string{address}, nil
	}
	return entry.Aliases, nil
}

func matches(patterns []pattern.Pattern, s string) bool {
	for _, p := range patterns {
		if p.Match(s) {
			return true
		}
	}
	return false
}

// route tells whether a local part asks to be sent on: the percent hack, a bang path, a quoted address. A next hop might
// do so, and would be an open relay by us. (RFC 5321, section 3.6.1, and appendix F.2.)
func route(local string) bool { return strings.ContainsAny(local, "%!@") }

// trusted tells whether the client may send to any domain.
func (s *session) trusted() bool {
	return s.user != nil || contains(s.set.cfg.Relay.Networks, s.addr.Addr()) || s.certified()
}

// certified tells whether the client's certificate is one that may relay.
func (c *client) certified() bool {
	for _, name := range c.names {
		if matches(c.set.cfg.Relay.Certificates, name) {
			return true
		}
	}
	return false
}

// admitRecipient returns the addresses that stand for a recipient, or why it is refused.
func (s *session) admitRecipient(address string) ([]string, error) {
	local, domain := address[:strings.LastIndexByte(address, '@')], address[strings.LastIndexByte(address, '@')+1:]
	own := strings.EqualFold(domain, s.set.cfg.Hostname)
	accepted := s.set.recipients.accepted(domain)
	trusted := s.trusted()
	switch {
	case strings.EqualFold(local, "postmaster") && (own || accepted): // RFC 5321, section 4.5.1
		return []string{address}, nil
	case !accepted && trusted:
		return []string{address}, nil
	case !accepted:
		return nil, errRelayDenied
	case !trusted && route(local):
		return nil, errRouted
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.set.cfg.Timeouts.Directory)
	defer cancel()
	final, err := s.set.recipients.resolve(ctx, address)
	if err == nil && !trusted && s.set.cfg.Greylist.Enabled {
		key := networkOf(s.addr.Addr()).String() + " " + strings.ToLower(s.tx.envelope.GetSender()+" "+address)
		if !s.g.grey.pass(s.set.cfg.Greylist, key, time.Now()) {
			return nil, errGreylisted
		}
	}
	return final, err
}
