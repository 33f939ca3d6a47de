package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Rate is one of `rates`: how much of something one client may bring in a time. It is a token bucket in the memory of one
// process: what was not used is kept up to Limit, and a restart forgets all.
type Rate struct {
	// Count is what is counted: connections, messages, recipients or bytes (of content).
	Count RateCount `yaml:"count"`
	// Per is who it is counted for: address (an IPv4 address, an IPv6 /64), network (IPv4 /24, IPv6 /48), user or
	// sender_domain. Clients of relay.networks are not counted by address and network.
	Per RatePer `yaml:"per"`
	// Limit is how many in the time Every. For bytes it may have a unit (100MB).
	Limit bytesize.Size `yaml:"limit"`
	// Every is the time.
	Every time.Duration `yaml:"every"`
}

// RateCount is what a rate counts.
type RateCount string

// What may be counted.
const (
	CountConnections RateCount = "connections"
	CountMessages    RateCount = "messages"
	CountRecipients  RateCount = "recipients"
	CountBytes       RateCount = "bytes"
)

// RatePer is who a rate counts for.
type RatePer string

// Who it may be counted for.
const (
	PerAddress      RatePer = "address"
	PerNetwork      RatePer = "network"
	PerUser         RatePer = "user"
	PerSenderDomain RatePer = "sender_domain"
)

func (r Rate) faults(key string) (errs []error) {
	switch r.Count {
	case CountConnections, CountMessages, CountRecipients, CountBytes:
	default:
		errs = append(errs, fmt.Errorf("%s.count %q is unknown: give connections, messages, recipients or bytes", key, string(r.Count)))
	}
	switch r.Per {
	case PerAddress, PerNetwork:
	case PerUser, PerSenderDomain:
		if r.Count == CountConnections {
			errs = append(errs, fmt.Errorf("%s.per %s is not known of a connection: give address or network", key, r.Per))
		}
	default:
		errs = append(errs, fmt.Errorf("%s.per %q is unknown: give address, network, user or sender_domain", key, string(r.Per)))
	}
	if r.Limit < 1 {
		errs = append(errs, fmt.Errorf("%s.limit %d is too small: give at least 1", key, r.Limit))
	}
	if r.Every <= 0 {
		errs = append(errs, fmt.Errorf("%s.every %s is too short: give a positive duration, such as 1h", key, r.Every))
	}
	return errs
}

// errRate is what a client above a rate is told. (RFC 3463, X.7.1.)
var errRate = smtpreply.New(450, "4.7.1", "You send too much, try again later")

// meter is a rate at work.
type meter struct {
	Rate
	buckets *buckets
}

// networkOf is what counts as one network: what a provider routes as one at least.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 48
	}
	p, _ := a.Prefix(bits) // fails for no such number of bits
	return p
}

// key is who a rate counts the client for; empty: it does not.
func (m *meter) key(c *client, user, sender string) string {
	addr := c.addr.Addr()
	switch m.Per {
	case PerAddress, PerNetwork:
		if contains(c.set.cfg.Relay.Networks, addr) {
			return ""
		}
		if m.Per == PerNetwork {
			return networkOf(addr).String()
		}
		return hostOf(addr).String()
	case PerUser:
		return user
	case PerSenderDomain:
		return strings.ToLower(sender[strings.LastIndexByte(sender, '@')+1:])
	}
	return ""
}

// pass counts one of something and tells whether the client may have it. What is refused by one rate is not counted by
// the others.
func (c *client) pass(count RateCount, user, sender string) bool {
	now := time.Now()
	for i := range c.set.meters {
		m := &c.set.meters[i]
		if key := m.key(c, user, sender); m.Count == count && key != "" && !m.buckets.has(key, now) {
			c.log.InfoContext(c.ctx, "above a rate", "count", string(count), "per", string(m.Per), "key", key)
			return false
		}
	}
	if count != CountBytes { // they are counted once they are known
		c.count(count, 1, user, sender)
	}
	return true
}

// count takes some of something from the client's rates.
func (c *client) count(count RateCount, n int64, user, sender string) {
	now := time.Now()
	for i := range c.set.meters {
		m := &c.set.meters[i]
		if key := m.key(c, user, sender); m.Count == count && key != "" {
			m.buckets.take(key, n, now)
		}
	}
}
