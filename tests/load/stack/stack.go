// Package stack starts the pipeline as separate operating-system processes for a measurement: fresh ones for each case, on a
// PostgreSQL of their own with durable settings, from the built program.
package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/resolver"
	"github.com/rohrpost/rohrpost/spool/pgserver"
)

// Options say what is started.
type Options struct {
	Rohrpost string // the program
	Rohrload string // this program, for a spool that discards
	Dir      string // for data; PostgreSQL's user must be able to enter it
	Next     string // next hop for all mail, host:port; empty discards it at delivery

	Discard  bool // gateways alone, before a spool that keeps nothing
	Hold     bool // gateways and spool alone: what is accepted stays in the spool
	Together bool // all services in one process (rohrpost up)
	Alone    bool // the spool alone, for those who speak its protocol themselves: see [Stack.Dial]

	Gateways     int                    // gateway processes on one address (SO_REUSEPORT); default 1
	OneCore      bool                   // gateways run on one core each (GOMAXPROCS=1)
	Parsers      int                    // parser processes; default 1
	ParserJobs   int                    // messages that each parser reads at once; default one for each core
	StartTLS     bool                   // gateways offer STARTTLS
	ReplyDelay   time.Duration          // of gateways before each reply
	MaxSessions  int                    // of each gateway; default 12 000
	Configure    func(*services.Config) // more changes, before it is written
	StartTimeout time.Duration          // default 1m
}

// Stack is a running pipeline.
type Stack struct {
	SMTP    string        // host:port of the gateways
	Startup time.Duration // from the start of the first process to the first greeting, or until a spool alone serves

	opts      Options
	config    string
	spool     string // host:port
	tls       process.TLSConfig
	env       []string
	pg        *pgserver.Server
	processes []*Process // in the order of starting
}

// Postgres starts the database server of a stack. It may serve several stacks, one after another.
func Postgres(ctx context.Context, dir string) (*pgserver.Server, error) {
	return pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(dir, "postgres")})
}

// Start starts a pipeline on a database server, which may be nil with Discard. The database is made anew.
func Start(ctx context.Context, pg *pgserver.Server, opts Options) (_ *Stack, err error) {
	defaults(&opts)
	s := &Stack{opts: opts, pg: pg}
	cfg, err := s.configure(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Configure != nil {
		opts.Configure(cfg)
	}
	s.tls = cfg.TLS
	if err := s.write(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, stopErr := s.Stop(context.WithoutCancel(ctx))
			err = errors.Join(err, stopErr)
		}
	}()
	if !opts.Discard {
		if err := s.database(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// run starts the processes and waits until they serve.
func (s *Stack) run(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	if err := s.start(ctx); err != nil {
		return err
	}
	if !s.opts.Alone {
		if err := Greeted(ctx, s.SMTP, s.processes...); err != nil {
			return err
		}
	}
	s.Startup = time.Since(begun)
	return nil
}

func defaults(o *Options) {
	o.Gateways, o.Parsers = max(1, o.Gateways), max(1, o.Parsers)
	if o.MaxSessions == 0 {
		o.MaxSessions = 12_000
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
}

// configure makes the configuration of a pipeline at free ports of loopback.
func (s *Stack) configure(ctx context.Context) (*services.Config, error) {
	o := s.opts
	cfg := services.DefaultConfig()
	var ports [4]string
	for i := range ports {
		var err error
		if ports[i], err = FreePort(ctx); err != nil {
			return nil, err
		}
	}
	certs := filepath.Join(o.Dir, "certs")
	if _, err := process.MakeCertificates(certs, process.CertificateOptions{}); err != nil {
		return nil, err
	}
	cfg.TLS.Dir = certs
	cfg.Log.Level = 4 // warnings: what is written for each message would be measured, too
	cfg.Gateway.Hostname = "mx.b.example"
	cfg.Gateway.MaxSessions, cfg.Gateway.ReplyDelay = o.MaxSessions, o.ReplyDelay
	cfg.Gateway.Listeners = []gateway.Listener{{Listen: ports[0], ReusePort: o.Gateways > 1}}
	cfg.Spool.Name, cfg.Spool.Listen, cfg.Connect.Spool = "bench", ports[1], ports[1]
	cfg.Spool.HTTPListen, cfg.Console.Listen = ports[2], ports[3]
	if o.StartTLS {
		cert, err := Certificate(o.Dir)
		if err != nil {
			return nil, err
		}
		cfg.Gateway.TLS.Certificates = []gateway.Certificate{cert}
	}
	cfg.Parser.Capacity = o.ParserJobs
	cfg.Resolver.Zone = []resolver.Record{{Name: "a.example", Type: "TXT", Value: "v=spf1 ip4:127.0.0.0/8 -all"}}
	route := deliver.Route{Match: []pattern.Pattern{pattern.MustParse("*")}, Via: deliver.ViaDiscard}
	if o.Next != "" {
		route.Via, route.SMTP = deliver.ViaSMTP, deliver.SMTPRoute{Address: o.Next}
	}
	cfg.Deliver.Routes = []deliver.Route{route}
	s.SMTP, s.spool = ports[0], ports[1]
	return &cfg, nil
}

// write writes the configuration as a user would; what is secret goes by the environment.
func (s *Stack) write(cfg *services.Config) error {
	text, err := process.Show(cfg)
	if err != nil {
		return err
	}
	s.config = filepath.Join(s.opts.Dir, "rohrpost.yaml")
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	s.env = []string{"GODEBUG=gctrace=1"}
	return nil
}

// start starts the processes in their order, the edge last.
func (s *Stack) start(ctx context.Context) error {
	if s.opts.Discard {
		if _, err := s.launch("discard", nil, s.opts.Rohrload, "discard", "--config", s.config); err != nil {
			return err
		}
		return s.gateways()
	}
	if s.opts.Together {
		_, err := s.service("up", "--data", filepath.Join(s.opts.Dir, "up"), "--database", s.pg.URL(database))
		return err
	}
	names := []string{process.Spool}
	if !s.opts.Hold && !s.opts.Alone {
		for range s.opts.Parsers {
			names = append(names, process.Parser)
		}
		names = append(names, process.Filter, process.Deliver)
	}
	for _, name := range names {
		if _, err := s.service(name); err != nil {
			return err
		}
	}
	// A gateway that finds no spool tries again some time later, and all mail gets 451 until then.
	if err := s.served(ctx); err != nil {
		return err
	}
	return s.gateways()
}

func (s *Stack) gateways() error {
	if s.opts.Alone {
		return nil
	}
	for range s.opts.Gateways {
		if _, err := s.service(process.Gateway); err != nil {
			return err
		}
	}
	return nil
}

// service starts a service of the pipeline.
func (s *Stack) service(name string, args ...string) (*Process, error) {
	var env []string
	if name == process.Gateway && s.opts.OneCore {
		env = append(env, "GOMAXPROCS=1")
	}
	return s.launch(name, env, s.opts.Rohrpost, append([]string{name, "--config", s.config}, args...)...)
}

func (s *Stack) launch(name string, env []string, binary string, args ...string) (*Process, error) {
	p, err := StartProcess(name, append(env, s.env...), binary, args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	return p, nil
}

const database = "rohrpost_bench"

// database makes an empty database with the schema.
func (s *Stack) database(ctx context.Context) error {
	if err := recreate(ctx, s.pg.URL("postgres"), database); err != nil {
		return err
	}
	s.env = append(s.env, "ROHRPOST_SPOOL_DATABASE="+s.pg.URL(database))
	p, err := StartProcess("migrate", s.env, s.opts.Rohrpost, "migrate", "--config", s.config)
	if err != nil {
		return err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		return errors.Join(fmt.Errorf("migrating: %w", ctx.Err()), p.Stop(stop))
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("migrating: %w\n%s", err, p.Log())
	}
	return nil
}

// Greeted waits until a server greets at an address. It fails when ctx ends or one of the processes does.
func Greeted(ctx context.Context, address string, processes ...*Process) error {
	for {
		err := greeting(ctx, address)
		if err == nil {
			return nil
		}
		if ended := exited(processes); ended != nil {
			return ended
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody greets at %s: %w", address, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// exited tells of a process that has ended and should not have.
func exited(processes []*Process) error {
	for _, p := range processes {
		select {
		case <-p.Exited():
			return fmt.Errorf("%s has ended: %w\n%s", p.Name, p.Err(), p.Log())
		default:
		}
	}
	return nil
}

func greeting(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var buf [512]byte
	n, err := conn.Read(buf[:])
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(buf[:n]), "220") {
		return fmt.Errorf("greeting %q", buf[:n])
	}
	return nil
}

// Stop stops the processes, the edge first, and tells how long that took. The database server goes on.
func (s *Stack) Stop(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	begun := time.Now()
	var errs []error
	for i := len(s.processes) - 1; i >= 0; i-- {
		errs = append(errs, s.processes[i].Stop(ctx))
	}
	s.processes = nil
	return time.Since(begun), errors.Join(errs...)
}

// Groups are the roots of the process groups to watch: the services, and the database server.
func (s *Stack) Groups() map[string][]int {
	groups := map[string][]int{}
	for _, p := range s.processes {
		name := "server"
		if p.Name == "discard" {
			name = "discard"
		}
		groups[name] = append(groups[name], p.PID())
	}
	if s.pg != nil {
		if pid, err := Postmaster(s.pg.Dir()); err == nil {
			groups["postgres"] = []int{pid}
		}
	}
	return groups
}

// GC is the CPU time that the services' garbage collectors took so far.
func (s *Stack) GC() time.Duration {
	var sum time.Duration
	for _, p := range s.processes {
		if p.Name != "discard" {
			sum += p.GC()
		}
	}
	return sum
}

// Database is the URL of the pipeline's database.
func (s *Stack) Database() string { return s.pg.URL(database) }

// Postmaster is the process id of the server that runs on a data folder.
func Postmaster(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid")) //nolint:gosec // a folder of the test's own
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(line)
}

// FreePort finds a free port of loopback. Another process might take it before ours does, but hardly ever.
func FreePort(ctx context.Context) (string, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer lis.Close()
	return lis.Addr().String(), nil
}
