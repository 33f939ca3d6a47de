package services

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/filter"
	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/parser"
	"github.com/rohrpost/rohrpost/services/console"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/resolver"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/fault"
)

// Config is the one configuration file: a section for each service, and a few that all of them share. Each process
// reads the sections that concern it.
type Config struct {
	// Log is what is written to standard error, and how.
	Log process.LogConfig `yaml:"log"`
	// TLS is how services know each other. `rohrpost up` does not use it.
	TLS process.TLSConfig `yaml:"tls"`
	// Connect is where gateways, workers and the console find the spools.
	Connect ConnectConfig `yaml:"connect"`
	// Health is where processes other than the spool answer health checks.
	Health HealthConfig `yaml:"health"`
	// Debug is where a process shows its profiles.
	Debug process.DebugConfig `yaml:"debug"`
	// Gateway is the SMTP edge.
	Gateway gateway.Config `yaml:"gateway"`
	// Spool is the life of messages and the database.
	Spool SpoolConfig `yaml:"spool"`
	// Parser reads messages.
	Parser parser.Config `yaml:"parser"`
	// Filter judges messages.
	Filter filter.Config `yaml:"filter"`
	// Deliver sends messages on.
	Deliver deliver.Config `yaml:"deliver"`
	// Console is the web page.
	Console console.Config `yaml:"console"`
	// Resolver asks the DNS.
	Resolver resolver.Config `yaml:"resolver"`
}

// ConnectConfig is the section `connect`.
type ConnectConfig struct {
	// Spool is the spools' host:port. The name may have several addresses; gateways and workers find the other spools of a
	// database by themselves.
	Spool string `yaml:"spool"`
}

// HealthConfig is the section `health`.
type HealthConfig struct {
	// Listen is the host:port of a gRPC server that answers health checks and nothing else. Empty means none. The
	// spool answers them at its own address.
	Listen string `yaml:"listen"`
}

// SpoolConfig is the section `spool`.
type SpoolConfig struct {
	spool.Config `yaml:",inline"`
	// Name is the spool's name, unique among those of a database. Empty means the host's name.
	Name string `yaml:"name"`
	// Listen is the host:port at which gateways, workers and operators connect.
	Listen string `yaml:"listen"`
	// HTTPListen is the host:port at which SendService and AdminService answer JSON over HTTP, with the same means to know
	// callers as Listen. Empty means not at all; `rohrpost up` takes 127.0.0.1:7026 then.
	HTTPListen string `yaml:"http_listen"`
	// HTTPHosts are the names and addresses, without port, by which HTTPListen may be called besides localhost, 127.0.0.1
	// and ::1. With tls it may be called by any.
	HTTPHosts []string `yaml:"http_hosts"`
	// Advertise is the host:port told to gateways and workers of other spools of the database; empty means not to be listed, auto
	// means the host's name and the port of Listen, as containers on one network can reach each other.
	Advertise string `yaml:"advertise"`
	// Database is the PostgreSQL connection URL.
	Database string `yaml:"database" secret:"url"`
	// Unsafe says that this is no production: a database with fsync or full_page_writes off is allowed, which may lose
	// accepted mail, and so are faults.
	Unsafe bool `yaml:"unsafe"`
	// EpochFile is a file in which the spool remembers its starts, on storage that a restored backup of the database does not
	// replace: then it notices such a restore, and sends nothing until `rohrpost spool resume`. Empty means none;
	// `rohrpost up` keeps one in its data folder.
	EpochFile string `yaml:"epoch_file"`
	// Faults make the spool fail, stall or exit at named places, such as result.durable=exit: for tests, with unsafe only.
	Faults string `yaml:"faults"`
}

// DefaultConfig is what holds where the file says nothing.
func DefaultConfig() Config {
	return Config{
		Log:      process.DefaultLogConfig(),
		Connect:  ConnectConfig{Spool: "127.0.0.1:7025"},
		Gateway:  gateway.DefaultConfig(),
		Spool:    SpoolConfig{Config: spool.DefaultConfig(), Listen: "127.0.0.1:7025"},
		Parser:   parser.DefaultConfig(),
		Filter:   filter.DefaultConfig(),
		Deliver:  deliver.DefaultConfig(),
		Console:  console.DefaultConfig(),
		Resolver: resolver.DefaultConfig(),
	}
}

// Validate tells what is wrong with the configuration, all of it at once; each line names the key and the mend.
func (c *Config) Validate() error {
	return errors.Join(
		c.Log.Validate(), c.TLS.Validate(), c.Debug.Validate(), c.Resolver.Validate(),
		section("gateway", c.Gateway.Validate()), section("spool", c.Spool.Validate()), c.Spool.validateFaults(),
		c.validateVerdictWait(),
		section("parser", c.Parser.Validate()), section("filter", c.Filter.Validate()),
		section("deliver", c.Deliver.Validate()),
		address("connect.spool", c.Connect.Spool), address("spool.listen", c.Spool.Listen),
		optionalAddress("spool.http_listen", c.Spool.HTTPListen), advertised(c.Spool.Advertise), section("console", c.Console.Validate()),
	)
}

// validateVerdictWait leaves room for the commit within what a client waits.
func (c *Config) validateVerdictWait() error {
	if submit := c.Gateway.Timeouts.Submit; c.Spool.VerdictWait > submit/2 {
		return fmt.Errorf("spool.verdict_wait: %s is more than half of gateway.timeouts.submit (%s): set less, or that to more",
			c.Spool.VerdictWait, submit)
	}
	return nil
}

func (c *SpoolConfig) validateFaults() error {
	if c.Faults != "" && !c.Unsafe {
		return errors.New("spool.faults: this is for tests: take it away, or set spool.unsafe where no mail matters")
	}
	if _, err := fault.Parse(c.Faults, nil); err != nil {
		return fmt.Errorf("spool.faults: %w", err)
	}
	return nil
}

// section puts a section's name before each of its errors that does not start with it.
func section(name string, err error) error {
	if err == nil {
		return nil
	}
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		errs := several.Unwrap()
		for i := range errs {
			errs[i] = section(name, errs[i])
		}
		return errors.Join(errs...)
	}
	if strings.HasPrefix(err.Error(), name+".") {
		return err
	}
	return fmt.Errorf("%s.%w", name, err)
}

func address(key, value string) error {
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("%s: %q is not an address: write host:port", key, value)
	}
	return nil
}

// autoAdvertise lets a spool find out by itself where others reach it.
const autoAdvertise = "auto"

func advertised(value string) error {
	if value == autoAdvertise {
		return nil
	}
	return optionalAddress("spool.advertise", value)
}

func optionalAddress(key, value string) error {
	if value == "" {
		return nil
	}
	return address(key, value)
}

// spoolAdvertise is the configured address, or the one that `auto` stands for.
func (c *Config) spoolAdvertise() (string, error) {
	if c.Spool.Advertise != autoAdvertise {
		return c.Spool.Advertise, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding the host's name for spool.advertise (write host:port there to mend): %w", err)
	}
	_, port, err := net.SplitHostPort(c.Spool.Listen)
	if err != nil || port == "" || port == "0" {
		return "", process.Usage("spool.advertise: auto needs a fixed port in spool.listen, not %q", c.Spool.Listen)
	}
	return net.JoinHostPort(host, port), nil
}

// parserCapacity is one job for each core unless configured.
func (c *Config) parserCapacity() int {
	if c.Parser.Capacity > 0 {
		return c.Parser.Capacity
	}
	return runtime.GOMAXPROCS(0)
}

// spoolName is the configured name or the host's.
func (c *Config) spoolName() (string, error) {
	if c.Spool.Name != "" {
		return c.Spool.Name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding the host's name for spool.name (set it to mend): %w", err)
	}
	return name, nil
}
