//go:build compose

package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// No container runs as root, writes outside its volumes, may gain rights, or listens beyond loopback; each has limits.
func TestContainersAreHardened(t *testing.T) {
	mustSend(t, "hardened") // so that every one has done something
	seen := map[string]bool{}
	for _, c := range pipeline.containers(t) {
		t.Run(c.service(), func(t *testing.T) {
			seen[c.service()] = true
			checkHardened(t, c)
			checkUser(t, c)
			checkWrites(t, c)
		})
	}
	for _, service := range []string{"secrets", "postgres", "migrate", "spool", "gateway", "parser", "filter", "deliver", "console", "jaeger", "mailpit"} {
		if !seen[service] {
			t.Errorf("%s has no container", service)
		}
	}
}

func checkHardened(t *testing.T, c container) {
	t.Helper()
	h := c.HostConfig
	if user, _, _ := strings.Cut(c.Config.User, ":"); user == "" || user == "root" || user == "0" {
		t.Errorf("its user is %q", c.Config.User)
	}
	if !h.ReadonlyRootfs {
		t.Error("its file system can be written")
	}
	if h.Privileged || len(h.CapAdd) > 0 || !slices.Equal(h.CapDrop, []string{"ALL"}) {
		t.Errorf("privileged %v, capabilities added %v, dropped %v", h.Privileged, h.CapAdd, h.CapDrop)
	}
	if !slices.Contains(h.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("security options %v", h.SecurityOpt)
	}
	if h.Memory <= 0 || h.PidsLimit <= 0 {
		t.Errorf("limits: memory %d, pids %d", h.Memory, h.PidsLimit)
	}
	if h.NetworkMode == "host" {
		t.Error("it is in the host's network")
	}
	if h.RestartPolicy.Name == "" || h.RestartPolicy.Name == "no" {
		t.Error("it has no restart policy")
	}
	for port, bindings := range c.NetworkSettings.Ports {
		for _, b := range bindings {
			if b.HostIP != "127.0.0.1" {
				t.Errorf("%s is open at %s:%s", port, b.HostIP, b.HostPort)
			}
		}
	}
}

// checkUser looks at the processes themselves: whatever the configuration says, none is root's.
func checkUser(t *testing.T, c container) {
	t.Helper()
	if !c.State.Running {
		return
	}
	out, err := pipeline.docker("top", c.ID, "-eo", "pid,uid,args")
	if err != nil {
		t.Error(err)
		return
	}
	for _, line := range strings.Split(out, "\n")[1:] {
		if fields := strings.Fields(line); len(fields) < 3 || fields[1] == "0" {
			t.Errorf("a process of root: %s", line)
		}
	}
}

// checkWrites looks for files that were made or changed outside of mounts. The engine itself makes the places for the
// mounts.
func checkWrites(t *testing.T, c container) {
	t.Helper()
	out, err := pipeline.docker("diff", c.ID)
	if err != nil {
		t.Error(err)
		return
	}
	for line := range strings.Lines(out) {
		var kind, path string
		if _, err := fmt.Sscan(line, &kind, &path); err != nil || forMount(path, c) {
			continue
		}
		t.Errorf("it wrote outside of its volumes: %s", strings.TrimSpace(line))
	}
}

// forMount tells whether a path is a mount's, or a folder above one.
func forMount(path string, c container) bool {
	targets := slices.Collect(maps.Keys(c.HostConfig.Tmpfs))
	for _, m := range c.Mounts {
		targets = append(targets, m.Destination)
	}
	return slices.ContainsFunc(targets, func(target string) bool {
		return target == path || strings.HasPrefix(target, path+"/")
	})
}
