//go:build compose

// Package compose runs docker-compose.yml on a real engine, under a project name and ports of its own, and looks at it
// from outside: SMTP, Mailpit's and Jaeger's APIs, AdminService. `make compose-test` runs it; without an engine it says
// so and runs nothing. It removes what it made, volumes included.
package compose

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// pipeline is the project that all tests share: to bring it up for each would take most of the time.
var pipeline *project

// patience bounds each wait. It is far longer than any takes: the machine may be slow and busy with other things.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", "compose", "version").CombinedOutput(); err != nil {
		return nothing(fmt.Sprintf("docker compose is not installed: %s", out))
	}
	if out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").CombinedOutput(); err != nil {
		return nothing(fmt.Sprintf("no Docker engine answers: %s", out))
	}
	var err error
	if pipeline, err = newProject(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer pipeline.remove()
	if err := pipeline.up(); err != nil {
		fmt.Fprintf(os.Stderr, "docker compose up: %v\n%s\n", err, pipeline.logs())
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, pipeline.logs())
	}
	return code
}

// nothing says loudly that nothing was tested.
func nothing(why string) int {
	fmt.Fprintf(os.Stderr, "LOUD: tests/compose tested NOTHING: %s\n", why)
	return 0
}
