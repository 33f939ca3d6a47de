//go:build linux

package cluster

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/resolver"
)

// writeConfig writes the one configuration file of all services. What differs from node to node is in their environment.
func (c *Cluster) writeConfig(opts Options) (string, error) {
	certs := filepath.Join(c.dir, "certs")
	if _, err := process.MakeCertificates(certs, process.CertificateOptions{}); err != nil {
		return "", err
	}
	if err := c.writeHosts(opts.Nodes); err != nil {
		return "", err
	}
	cfg := services.DefaultConfig()
	cfg.TLS.Dir = certs
	cfg.Gateway.Listeners[0].Listen, cfg.Spool.Listen = "0.0.0.0:2525", "0.0.0.0:7025"
	cfg.Gateway.Hostname = "mx.example"
	cfg.Gateway.Relay.Networks = []netip.Prefix{netip.MustParsePrefix(Host + "/32")}
	cfg.Log.Level = slog.LevelDebug
	// The DNS is a static zone; what is not in it is refused at once.
	cfg.Resolver.Servers = []string{"127.0.0.1:1"}
	cfg.Resolver.Timeout, cfg.Resolver.Rounds = 200*time.Millisecond, 1
	cfg.Resolver.Zone = []resolver.Record{
		{Name: "a.example", Type: "TXT", Value: "v=spf1 ip4:" + Host + " -all"},
		{Name: Host, Type: "PTR", Value: "client.a.example"},
		{Name: "client.a.example", Type: "A", Value: Host},
	}
	hurry(&cfg)
	if opts.Configure != nil {
		opts.Configure(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	text, err := process.Show(&cfg)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "rohrpost.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// hurry shortens what would make a short run wait for most of its time. The order of the limits stays.
func hurry(cfg *services.Config) {
	s := &cfg.Spool
	s.Lease, s.AgainFor, s.DrainTimeout = 4*time.Second, 20*time.Second, 5*time.Second
	// Most faults last longer than this grace, so that what lost workers bring back meets the next attempt.
	s.JobLease, s.ReturnGrace, s.UnknownDelay = 12*time.Second, 2500*time.Millisecond, 300*time.Millisecond
	s.BackOff = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	cfg.Gateway.Timeouts.Submit, cfg.Gateway.Timeouts.Shutdown = 15*time.Second, 5*time.Second
	d := &cfg.Deliver.Timeouts
	d.Connect, d.Greeting, d.Helo, d.Mail, d.Rcpt, d.Data = 3*time.Second, 4*time.Second, 4*time.Second, 4*time.Second, 4*time.Second, 4*time.Second
	d.DataDot, d.Quit = 4*time.Second, time.Second
}

// The names of all spools together, as a service's name in compose or Kubernetes is.
const (
	inOrder  = "spools.chaos"
	reversed = "spools-reversed.chaos"
)

// spools is the name by which a node finds the spools. The second node of a service is told them in the other order, so
// that both spools have gateways.
func spools(node string) string {
	if strings.HasSuffix(node, "-2") {
		return reversed
	}
	return inOrder
}

// writeHosts writes the names of the spools over /etc/hosts, in the mounts of this process alone.
func (c *Cluster) writeHosts(nodes []string) error {
	var forward, backward string
	for _, node := range nodes {
		if instanceOf(node, process.Spool) {
			address := c.net.nodes[node].address
			forward, backward = forward+address+" "+inOrder+"\n", address+" "+reversed+"\n"+backward
		}
	}
	path := filepath.Join(c.dir, "hosts")
	if err := os.WriteFile(path, []byte("127.0.0.1 localhost\n"+forward+backward), 0o644); err != nil { //nolint:gosec // /etc/hosts is for everyone
		return err
	}
	if err := unix.Mount(path, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s over /etc/hosts: %w", path, err)
	}
	return nil
}
