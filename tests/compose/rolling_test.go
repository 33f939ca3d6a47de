//go:build compose

package compose

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newTag names the image that a rolling restart brings.
const newTag = "test-next"

// deploy/rolling.sh brings a new image to every service while mail goes on: nothing that was accepted is lost, and sessions
// are refused by 421.
func TestRollingRestartUnderTraffic(t *testing.T) {
	services := []string{"spool", "parser", "filter", "deliver", "console", "gateway"}
	pipeline.tellLogs(t, services...)
	restoreFiles := pipeline.withFile("deploy/compose.scale.yaml")
	pipeline.do(t, "up", "-d", "--wait", "--scale", "gateway=2")
	restoreTag := pipeline.with("ROHRPOST_TAG=" + newTag)
	t.Cleanup(func() {
		restoreFiles()
		restoreTag()
		pipeline.do(t, "up", "-d", "--wait")
		if _, err := pipeline.docker("rmi", "rohrpost:"+newTag); err != nil {
			t.Error(err)
		}
	})
	pipeline.do(t, "build")

	tr := startTrafficTo(t, "rolling", 100*time.Millisecond, func() []string { return pipeline.lookUp("gateway") })
	time.Sleep(time.Second) // some mail goes by the old containers
	t.Log(pipeline.script(t, "deploy/rolling.sh"))
	last := tr.count()
	eventually(t, "mail is accepted by the new containers", func() error {
		if tr.count() < last+10 {
			return errNotYet
		}
		return nil
	})
	tr.check(t)
	// A machine that is too slow for a spool to take over within the 3 s that a gateway waits may refuse some mail by 451.
	other := 0
	for kind, n := range tr.saw("") {
		if !strings.HasPrefix(kind, "421 ") {
			other += n
		}
	}
	if 10*other > tr.count() {
		t.Errorf("%d accepted, refused %v: want refusals by 421", tr.count(), tr.saw(""))
	}
	for _, c := range pipeline.containers(t, services...) {
		if !c.State.Running || c.Config.Image != "rohrpost:"+newTag {
			t.Errorf("%s is %s, running %v", c.Name, c.Config.Image, c.State.Running)
		}
	}
	if n := len(pipeline.gateways(t)); n != 2 {
		t.Errorf("%d gateways, want 2 as before", n)
	}
}

// lookUp asks the engine for the addresses that a service's name has in the network, as its DNS would tell.
func (p *project) lookUp(service string) []string {
	out, err := p.docker("network", "inspect", p.name+"_services", "--format", `{{range .Containers}}{{println .Name .IPv4Address}}{{end}}`)
	if err != nil {
		return nil
	}
	var addresses []string
	for line := range strings.Lines(out) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ip, _, _ := strings.Cut(address, "/"); ip != "" && strings.HasPrefix(name, p.name+"-"+service+"-") {
			addresses = append(addresses, ip+":2525")
		}
	}
	return addresses
}

// script runs a script of the repository on the project, as a user would.
func (p *project) script(t testing.TB, file string) string {
	t.Helper()
	var files []string
	for _, f := range p.files {
		files = append(files, filepath.Join(p.root, f))
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.root, file))
	cmd.Env = append(p.env, "COMPOSE_FILE="+strings.Join(files, ":"), "COMPOSE_PROJECT_NAME="+p.name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	return string(out)
}
