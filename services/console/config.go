package console

import (
	"fmt"
	"net"
)

// Config is the section `console`.
type Config struct {
	// Listen is the address of the pages, host:port.
	Listen string `yaml:"listen"`
	// AllowRemote lets Listen be an address that other machines can reach, as in a container. The console has no
	// sign-in: whoever reaches it sees senders, recipients and subjects.
	AllowRemote bool `yaml:"allow_remote"`
	// Hosts are the names and addresses, without port, by which the console may be called besides localhost,
	// 127.0.0.1 and ::1.
	Hosts []string `yaml:"hosts"`
	// PageSize is how many messages stand on a page, from 1 to 1000.
	PageSize int32 `yaml:"page_size"`
}

// DefaultConfig serves this machine.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8025", PageSize: 50} }

// Validate checks the section. The error names the key and the mend.
func (c Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("console.listen: %q is not an address; use host:port, such as 127.0.0.1:8025", c.Listen)
	}
	ip := net.ParseIP(host)
	if loopback := host == "localhost" || ip != nil && ip.IsLoopback(); !loopback && !c.AllowRemote {
		return fmt.Errorf("console.listen: others can reach %s and the console has no sign-in; use 127.0.0.1, or set console.allow_remote", c.Listen)
	}
	if c.PageSize < 1 || c.PageSize > 1000 {
		return fmt.Errorf("console.page_size: %d is out of range; use 1 to 1000", c.PageSize)
	}
	return nil
}
