//go:build linux

// Package cluster runs the services and PostgreSQL as processes that can be broken one by one: each on a node of its own,
// a network namespace with an address of its own, joined by a bridge; their disks are small file systems in memory. All of
// it lives in namespaces of the calling process, so that nothing outlives it and nothing on the machine changes.
package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// Options say what runs where.
type Options struct {
	Binary string // of rohrpost
	Dir    string // an empty folder for configuration, logs and the mount points of disks
	Nodes  []string
	// DataMiB is the size of the disk for PostgreSQL's data, in MiB. That for Maildirs has a quarter of it.
	DataMiB int
	// Configure changes the configuration of all services before they start.
	Configure func(*services.Config)
	// Env is added to the services' environment.
	Env []string
}

// Cluster is what runs. Its methods may be called concurrently.
type Cluster struct {
	dir      string
	net      *network
	disks    map[string]*disk
	postgres *postgres
	services map[string]*Process
	order    []string

	mu     sync.Mutex
	upkeep []Ending // what happened that no fault asked for
}

// Host is the address of the caller's side of the network, where generator and sink are.
const Host = "10.77.0.1"

// gracePatience bounds how long a service may take to stop when asked: more than every unit of it may take together.
const gracePatience = 90 * time.Second

// The names of the disks.
const (
	DiskData = schedule.Postgres + "-data"
	DiskWAL  = schedule.Postgres + "-wal"
	DiskMail = "mail"
)

// Start starts PostgreSQL and then the services, which may take a moment until they serve.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c := &Cluster{dir: opts.Dir, services: map[string]*Process{}, order: opts.Nodes, disks: map[string]*disk{}}
	if err := os.MkdirAll(filepath.Join(opts.Dir, "logs"), 0o755); err != nil { //nolint:gosec // logs are for everyone here
		return nil, err
	}
	var err error
	if c.net, err = newNetwork(ctx, append([]string{schedule.Postgres}, opts.Nodes...)); err != nil {
		return nil, err
	}
	for name, size := range map[string]int{DiskData: opts.DataMiB, DiskWAL: 128, DiskMail: opts.DataMiB / 4} {
		if c.disks[name], err = newDisk(filepath.Join(opts.Dir, name), size); err != nil {
			return nil, err
		}
	}
	if c.postgres, err = c.startPostgres(ctx); err != nil {
		return nil, err
	}
	return c, c.startServices(ctx, opts)
}

// Mail is the folder of the disk for Maildirs.
func (c *Cluster) Mail() string { return c.disks[DiskMail].path }

// Address is the address of a node.
func (c *Cluster) Address(node string) string { return c.net.nodes[node].address }

// Services are the processes of the services in the order of starting.
func (c *Cluster) Services() []*Process {
	list := make([]*Process, 0, len(c.order))
	for _, name := range c.order {
		list = append(list, c.services[name])
	}
	return list
}

// Ending is the end of a process that no fault asked for. It was started again.
type Ending struct {
	At   time.Time
	Node string
	How  string // its exit status, or why it could not be started again
}

// Upkeep lists the endings that no fault asked for.
func (c *Cluster) Upkeep() []Ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.upkeep)
}

func (c *Cluster) note(node, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upkeep = append(c.upkeep, Ending{At: time.Now(), Node: node, How: how})
}

// Do makes a fault and returns what undoes it; that of a fault which was made by half comes with the error. A fault that starts a process again waits until it has stopped.
func (c *Cluster) Do(ctx context.Context, f schedule.Fault) (undo func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	switch f.Kind {
	case schedule.Isolate:
		return c.net.isolate(ctx, f.Node)
	case schedule.Partition:
		return c.net.partition(ctx, f.Node, f.Peer)
	case schedule.Slow:
		return c.net.slow(ctx, f.Node)
	case schedule.Break:
		return nothing, c.net.breakConnections(ctx, f.Node)
	case schedule.Fill:
		d := c.disks[f.Node]
		return d.free, d.fill()
	case schedule.Terminate:
		return nothing, c.postgres.terminate(ctx)
	case schedule.Kill, schedule.Pause, schedule.Restart, schedule.Immediate:
		if f.Node == schedule.Postgres {
			return c.postgres.proc.fault(f.Kind)
		}
		return c.services[f.Node].fault(f.Kind)
	default:
		return nil, fmt.Errorf("there is no fault %q", f.Kind)
	}
}

// Connect connects to the database.
func (c *Cluster) Connect(ctx context.Context) (*pgx.Conn, error) { return c.postgres.connect(ctx) }

// WaitDatabase waits until PostgreSQL takes connections.
func (c *Cluster) WaitDatabase(ctx context.Context) error { return c.postgres.wait(ctx) }

// Close ends PostgreSQL and gives back the disks. The network ends with the process.
func (c *Cluster) Close() {
	c.postgres.proc.kill()
	for _, d := range c.disks {
		d.unmount()
	}
}

// startServices writes the configuration and starts every service on its node.
func (c *Cluster) startServices(ctx context.Context, opts Options) error {
	config, err := c.writeConfig(opts)
	if err != nil {
		return err
	}
	env := append(os.Environ(), opts.Env...)
	env = append(env, "ROHRPOST_SPOOL_DATABASE="+c.postgres.url())
	if out, err := command(ctx, []string{opts.Binary, "migrate", "--config", config}, env); err != nil {
		return fmt.Errorf("rohrpost migrate: %w\n%s", err, out)
	}
	for _, name := range opts.Nodes {
		n := c.net.nodes[name]
		word := process.Spool
		for _, w := range process.CertificateServices() {
			if instanceOf(name, w) {
				word = w
			}
		}
		own := append(env[:len(env):len(env)],
			"ROHRPOST_SPOOL_NAME="+name, "ROHRPOST_SPOOL_ADVERTISE="+n.address+":7025", "ROHRPOST_CONNECT_SPOOL="+spools(name)+":7025")
		c.services[name] = &Process{
			Name: name, Word: word, node: n, args: []string{opts.Binary, word, "--config", config}, env: own,
			log: filepath.Join(c.dir, "logs", name+".log"), note: c.note,
		}
		if err := c.services[name].Start(); err != nil {
			return err
		}
	}
	return nil
}

// instanceOf tells whether a node runs a service: parser-2 runs parser.
func instanceOf(node, word string) bool {
	return len(node) > len(word) && node[:len(word)+1] == word+"-"
}
