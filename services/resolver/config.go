package resolver

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// Config is the section `resolver`.
type Config struct {
	// Servers are the DNS servers to ask, in order: an IP address, with :port where it is not 53. Empty means those of
	// /etc/resolv.conf. They must be recursive.
	Servers []string `yaml:"servers"`
	// Timeout is how long to wait for one answer of one server, from 100ms to 30s.
	Timeout time.Duration `yaml:"timeout"`
	// Rounds is how often the list of servers is gone through before a lookup fails, from 1 to 10.
	Rounds int `yaml:"rounds"`
	// CacheSize is how many answers are kept, from 0 (none) to 1 000 000.
	CacheSize int `yaml:"cache_size"`
	// MaxTTL is how long an answer is kept at most, whatever its TTL says.
	MaxTTL time.Duration `yaml:"max_ttl"`
	// MaxNegativeTTL is how long it is remembered at most that a name or type does not exist.
	MaxNegativeTTL time.Duration `yaml:"max_negative_ttl"`
	// Zone holds records that are answered without asking a server: for trying things and for tests. A name that
	// stands here has no other records.
	Zone []Record `yaml:"zone"`
}

// Record is one record of the static zone.
type Record struct {
	// Name is the domain name, without final dot. For PTR it may also be the IP address itself.
	Name string `yaml:"name"`
	// Type is TXT, MX, A, AAAA or PTR.
	Type string `yaml:"type"`
	// Value is the text of a TXT record; `10 mail.example.org` of an MX record; the address of an A or AAAA record; the
	// name of a PTR record. `0 .` is a null MX.
	Value string `yaml:"value"`
}

// DefaultConfig asks the system's servers.
func DefaultConfig() Config {
	return Config{
		Timeout:        2 * time.Second,
		Rounds:         2,
		CacheSize:      10_000,
		MaxTTL:         24 * time.Hour,
		MaxNegativeTTL: 15 * time.Minute,
	}
}

// Validate checks the section. The error names the key and the mend.
func (c Config) Validate() error {
	for _, server := range c.Servers {
		host, _, err := net.SplitHostPort(withPort(server))
		if err != nil || net.ParseIP(strings.Split(host, "%")[0]) == nil {
			return fmt.Errorf("resolver.servers: %q is not an IP address, or one with :port", server)
		}
	}
	switch {
	case c.Timeout < 100*time.Millisecond || c.Timeout > 30*time.Second:
		return fmt.Errorf("resolver.timeout: %s is out of range; use 100ms to 30s", c.Timeout)
	case c.Rounds < 1 || c.Rounds > 10:
		return fmt.Errorf("resolver.rounds: %d is out of range; use 1 to 10", c.Rounds)
	case c.CacheSize < 0 || c.CacheSize > 1_000_000:
		return fmt.Errorf("resolver.cache_size: %d is out of range; use 0 to 1000000", c.CacheSize)
	case c.MaxTTL < 0:
		return fmt.Errorf("resolver.max_ttl: %s is negative; use 0 or more", c.MaxTTL)
	case c.MaxNegativeTTL < 0:
		return fmt.Errorf("resolver.max_negative_ttl: %s is negative; use 0 or more", c.MaxNegativeTTL)
	}
	_, err := newZone(c.Zone)
	return err
}
