package rohrtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool/pgserver"
)

// processes are the operating-system processes of a pipeline.
type processes struct {
	binary string
	config string
	env    []string
	pg     *pgserver.Server

	mu      sync.Mutex
	running map[string]*exec.Cmd // by instance, such as parser or parser-2
	exited  map[string]chan struct{}
	// profiles are the addresses of the instances' profiles; nil where none are wanted.
	profiles map[string]string
}

// services that make a pipeline, in the order of starting.
var order = []string{process.Spool, process.Parser, process.Filter, process.Deliver, process.Console, process.Gateway}

// startProcesses starts PostgreSQL and the six services and returns what stops them.
func (p *Pipeline) startProcesses(cfg *services.Config, o *options) func() {
	p.t.Helper()
	ctx := context.Background()
	pg, err := pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(o.data, "postgres")})
	if err != nil {
		p.t.Fatalf("starting PostgreSQL: %v", err)
	}
	if err := pg.EnsureDatabase(ctx, "rohrpost"); err != nil {
		p.t.Fatal(err)
	}
	certs := filepath.Join(o.data, "certs")
	if _, err := process.MakeCertificates(certs, process.CertificateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	cfg.Spool.Database, cfg.TLS.Dir = pg.URL("rohrpost"), certs
	cfg.Gateway.Listeners[0].Listen, cfg.Spool.Listen, cfg.Console.Listen = p.freePort(), p.freePort(), p.freePort()
	cfg.Spool.HTTPListen = p.freePort()
	cfg.Spool.Advertise, cfg.Connect.Spool = cfg.Spool.Listen, cfg.Spool.Listen
	p.running = services.Running{SMTP: cfg.Gateway.Listeners[0].Listen, HTTP: cfg.Console.Listen, GRPC: cfg.Spool.Listen, JSON: cfg.Spool.HTTPListen, Data: o.data}
	p.procs = &processes{
		binary: o.binary, config: p.writeConfig(cfg, o.data), pg: pg,
		running: map[string]*exec.Cmd{}, exited: map[string]chan struct{}{},
		env: append(os.Environ(), "PGPASSWORD=", "ROHRPOST_SPOOL_DATABASE="+pg.URL("rohrpost")),
	}
	if !o.untraced {
		p.procs.env = append(p.procs.env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+p.spans.address, "OTEL_BSP_SCHEDULE_DELAY=100")
	}
	if o.profiled {
		p.procs.profiles = map[string]string{}
	}
	p.run("migrate")
	for _, service := range order {
		p.StartProcess(service)
	}
	_, client, err := process.LoadTLS(cfg.TLS, process.CLI)
	if err != nil {
		p.t.Fatal(err)
	}
	p.connect(process.DialOptions{TLS: client})
	p.waitUp()
	return p.stopProcesses
}

// run runs a command to its end.
func (p *Pipeline) run(args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.procs.binary, append(args, "--config", p.procs.config)...) //nolint:gosec // the test's own binary
	cmd.Env = p.procs.env
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("rohrpost %v: %v\n%s", args, err, out)
	}
}

// StartProcess starts an instance of a service: `parser`, or `parser-2` for one more. env overrides its environment, such
// as ROHRPOST_SPOOL_FAULTS=result.durable=exit.
func (p *Pipeline) StartProcess(instance string, env ...string) {
	p.t.Helper()
	service := instance
	for _, word := range order {
		if len(instance) > len(word) && instance[:len(word)+1] == word+"-" {
			service = word
		}
	}
	cmd := exec.Command(p.procs.binary, service, "--config", p.procs.config) //nolint:gosec,noctx // ended by Kill and stopProcesses
	cmd.Env = slices.Concat(p.procs.env, p.profile(instance), env)
	cmd.Stderr = p.log
	cmd.Stdout = p.log
	// Nothing outlives the test, however it ends.
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("starting %s: %v", instance, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	p.procs.mu.Lock()
	defer p.procs.mu.Unlock()
	p.procs.running[instance], p.procs.exited[instance] = cmd, exited
}

// profile gives an instance an address for its profiles, where they are wanted.
func (p *Pipeline) profile(instance string) []string {
	if p.procs.profiles == nil {
		return nil
	}
	address := p.freePort()
	p.procs.mu.Lock()
	defer p.procs.mu.Unlock()
	p.procs.profiles[instance] = address
	return []string{"ROHRPOST_DEBUG_LISTEN=" + address}
}

// Profiles is the host:port at which an instance shows its profiles, with [WithProfiles].
func (p *Pipeline) Profiles(instance string) string {
	p.procs.mu.Lock()
	defer p.procs.mu.Unlock()
	return p.procs.profiles[instance]
}

// PID is the process id of a running instance, 0 where it does not run.
func (p *Pipeline) PID(instance string) int {
	p.procs.mu.Lock()
	defer p.procs.mu.Unlock()
	if cmd := p.procs.running[instance]; cmd != nil {
		return cmd.Process.Pid
	}
	return 0
}

// Kill ends an instance by SIGKILL.
func (p *Pipeline) Kill(instance string) { p.signal(instance, syscall.SIGKILL) }

// WaitExit waits until an instance has ended by itself and tells its exit code.
func (p *Pipeline) WaitExit(instance string) int {
	p.t.Helper()
	p.procs.mu.Lock()
	cmd, exited := p.procs.running[instance], p.procs.exited[instance]
	p.procs.mu.Unlock()
	select {
	case <-exited:
	case <-time.After(Patience):
		p.t.Fatalf("%s did not end within %s", instance, Patience)
	}
	p.procs.mu.Lock()
	delete(p.procs.running, instance)
	p.procs.mu.Unlock()
	return cmd.ProcessState.ExitCode()
}

// Reconfigure changes the configuration file, which processes read at their next start, or when they get SIGHUP.
func (p *Pipeline) Reconfigure(change func(*services.Config)) {
	p.t.Helper()
	change(p.cfg)
	p.writeConfig(p.cfg, filepath.Dir(p.procs.config))
}

// Hangup sends SIGHUP to an instance.
func (p *Pipeline) Hangup(instance string) {
	p.t.Helper()
	p.procs.mu.Lock()
	defer p.procs.mu.Unlock()
	if err := p.procs.running[instance].Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatalf("signalling %s: %v", instance, err)
	}
}

// StopProcess ends an instance by SIGTERM and waits for it.
func (p *Pipeline) StopProcess(instance string) { p.signal(instance, syscall.SIGTERM) }

func (p *Pipeline) signal(instance string, sig os.Signal) {
	p.t.Helper()
	p.procs.mu.Lock()
	cmd, exited := p.procs.running[instance], p.procs.exited[instance]
	delete(p.procs.running, instance)
	p.procs.mu.Unlock()
	if cmd == nil {
		p.t.Fatalf("%s is not running", instance)
		return
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("signalling %s: %v", instance, err)
	}
	select {
	case <-exited:
	case <-time.After(Patience):
		_ = cmd.Process.Kill()
		p.t.Errorf("%s did not stop within %s", instance, Patience)
	}
}

// Postgres is the database server of a pipeline of processes.
func (p *Pipeline) Postgres() *pgserver.Server { return p.procs.pg }

// stopProcesses stops what still runs, the edge first.
func (p *Pipeline) stopProcesses() {
	_ = p.conn.Close()
	p.procs.mu.Lock()
	var instances []string
	for i := range order {
		word := order[len(order)-1-i]
		for instance := range p.procs.running {
			if instance == word || len(instance) > len(word) && instance[:len(word)+1] == word+"-" {
				instances = append(instances, instance)
			}
		}
	}
	p.procs.mu.Unlock()
	for _, instance := range instances {
		p.StopProcess(instance)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := p.procs.pg.Stop(ctx); err != nil {
		p.t.Errorf("stopping PostgreSQL: %v", err)
	}
}

// waitUp waits until the spool serves and the gateway listens.
func (p *Pipeline) waitUp() {
	p.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		resp, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{
			Service: "rohrpost.spool.v1.SpoolService",
		})
		cancel()
		if err == nil && resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			var c net.Conn
			if c, err = (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.running.SMTP); err == nil {
				_ = c.Close()
				return
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the processes did not come up: %v %v\n%s", resp, err, p.log.tail())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freePort finds a free port. Another process might take it before ours does, but hardly ever.
func (p *Pipeline) freePort() string {
	p.t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// writeConfig writes the configuration to a file as a user would. What is secret goes by the environment.
func (p *Pipeline) writeConfig(cfg *services.Config, dir string) string {
	p.t.Helper()
	masked := *cfg
	masked.Spool.Database = ""
	text, err := process.Show(&masked)
	if err != nil {
		p.t.Fatal(err)
	}
	path := filepath.Join(dir, "rohrpost.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		p.t.Fatal(fmt.Errorf("writing the configuration: %w", err))
	}
	return path
}
