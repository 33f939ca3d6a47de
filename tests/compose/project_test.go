//go:build compose

package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/services/process"
)

// project is one `docker compose` project.
type project struct {
	name  string
	root  string   // of the repository
	files []string // compose files
	env   []string
	certs string // the folder of the secrets, copied out
	ports map[string]int
}

// newProject makes a name and finds ports that nobody else has.
func newProject() (*project, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	certs, err := os.MkdirTemp("", "rohrpost-compose-*")
	if err != nil {
		return nil, err
	}
	p := &project{
		name: fmt.Sprintf("rohrpost-test-%d", os.Getpid()), root: root, certs: certs, ports: map[string]int{},
		files: []string{"docker-compose.yml", "tests/compose/testdata/compose.test.yaml"},
		env:   append(os.Environ(), "ROHRPOST_TAG=test"), // its image stays, as a cache
	}
	for service, variable := range map[string]string{
		"gateway": "SMTP_PORT", "console": "CONSOLE_PORT", "jaeger": "JAEGER_PORT", "mailpit": "MAILPIT_PORT",
		"spool": "GRPC_PORT", "spool-json": "JSON_PORT",
	} {
		// Another process might take the port before the engine does, but hardly ever. The engine's own choice would
		// change whenever a container starts again.
		lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.ports[service] = lis.Addr().(*net.TCPAddr).Port
		if err := lis.Close(); err != nil {
			return nil, err
		}
		p.env = append(p.env, fmt.Sprintf("%s=%d", variable, p.ports[service]))
	}
	return p, nil
}

// compose runs a docker compose command and returns its output.
func (p *project) compose(args ...string) (string, error) {
	all := []string{"compose", "--project-name", p.name, "--project-directory", p.root, "--progress", "quiet"}
	for _, file := range p.files {
		all = append(all, "-f", filepath.Join(p.root, file))
	}
	return p.docker(append(all, args...)...)
}

// commandTimeout bounds a command of Docker. The image is built by one: ten minutes where nothing is cached.
const commandTimeout = 20 * time.Minute

func (p *project) docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = p.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// do runs a docker compose command that must work.
func (p *project) do(t testing.TB, args ...string) string {
	t.Helper()
	out, err := p.compose(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// with sets variables for the commands that follow, until restore is called.
func (p *project) with(variables ...string) (restore func()) {
	before := p.env
	p.env = append(slices.Clip(before), variables...)
	return func() { p.env = before }
}

// withFile adds a compose file to the commands that follow, until restore is called.
func (p *project) withFile(file string) (restore func()) {
	before := p.files
	p.files = append(slices.Clip(before), file)
	return func() { p.files = before }
}

// up builds the image and brings everything up from nothing.
func (p *project) up() error {
	if _, err := p.compose("build"); err != nil {
		return fmt.Errorf("%w\n(without a registry: deploy/offline/build-images.sh makes the base images)", err)
	}
	if _, err := p.compose("up", "-d", "--wait"); err != nil {
		return err
	}
	_, err := p.compose("cp", "secrets:/secrets/.", p.certs)
	return err
}

// remove leaves nothing behind.
func (p *project) remove() {
	if _, err := p.compose("--profile", "cli", "down", "--volumes", "--timeout", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(p.certs)
}

// logs returns the last lines of services, of all if none is named.
func (p *project) logs(services ...string) string {
	out, err := p.compose(append([]string{"logs", "--no-color", "--tail", "60"}, services...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// tellLogs shows the last lines of those services that the test is about if it fails.
func (p *project) tellLogs(t testing.TB, services ...string) {
	t.Helper()
	failed := t.Failed()
	t.Cleanup(func() {
		if t.Failed() && !failed {
			t.Logf("the logs of %v:\n%s", services, p.logs(services...))
		}
	})
}

// address is where the port of a service is published on the host.
func (p *project) address(service string) string {
	return fmt.Sprintf("127.0.0.1:%d", p.ports[service])
}

// container is what `docker inspect` says of a container, as far as tests look at it.
type container struct {
	ID     string `json:"Id"`
	Name   string
	Config struct {
		User     string
		Image    string
		Hostname string
		Labels   map[string]string
	}
	State struct {
		Running    bool
		OOMKilled  bool
		StartedAt  time.Time
		FinishedAt time.Time
	}
	HostConfig struct {
		ReadonlyRootfs bool
		Privileged     bool
		CapAdd         []string
		CapDrop        []string
		SecurityOpt    []string
		NetworkMode    string
		Memory         int64
		PidsLimit      int64
		RestartPolicy  struct{ Name string }
		Tmpfs          map[string]string
	}
	Mounts []struct {
		Type, Destination string
		RW                bool
	}
	NetworkSettings struct {
		Ports    map[string][]struct{ HostIP, HostPort string }
		Networks map[string]struct{ IPAddress string }
	}
}

// service is the compose service that a container belongs to.
func (c *container) service() string { return c.Config.Labels["com.docker.compose.service"] }

// containers returns the containers of services, of all if none is named, stopped ones included.
func (p *project) containers(t testing.TB, services ...string) []container {
	t.Helper()
	ids := strings.Fields(p.do(t, append([]string{"ps", "-a", "-q"}, services...)...))
	if len(ids) == 0 {
		t.Fatalf("no containers of %v", services)
	}
	out, err := p.docker(append([]string{"inspect"}, ids...)...)
	if err != nil {
		t.Fatal(err)
	}
	var list []container
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// gateways are the addresses of all gateways' containers that run: where they scale, none has a port on the host.
func (p *project) gateways(t testing.TB) []string {
	t.Helper()
	var addresses []string
	for _, c := range p.containers(t, "gateway") {
		if c.State.Running {
			addresses = append(addresses, c.NetworkSettings.Networks[p.name+"_services"].IPAddress+":2525")
		}
	}
	return addresses
}

// dial connects to the first spool with the certificate of a service. The spool has no port on the host: the test
// reaches it at its address in the engine's network.
func (p *project) dial(t testing.TB, service string) *grpc.ClientConn {
	t.Helper()
	ip := p.containers(t, "spool")[0].NetworkSettings.Networks[p.name+"_services"].IPAddress
	_, client, err := process.LoadTLS(process.TLSConfig{Dir: filepath.Join(p.certs, service)}, service)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := process.Dial(net.JoinHostPort(ip, "7025"), process.DialOptions{TLS: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// eventually asks again until there is no error.
func eventually(t testing.TB, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

var errNotYet = errors.New("not yet")
