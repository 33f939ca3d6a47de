//go:build unix

package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rohrpost/rohrpost/gateway"
)

// A process that runs out of open files serves the sessions that it has, and takes new ones once files are free.
func TestOutOfFiles(t *testing.T) {
	if os.Getenv("ROHRPOST_TEST_FEW_FILES") != "" {
		serveWithFewFiles(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutOfFiles$", "-test.v")
	cmd.Env = append(os.Environ(), "ROHRPOST_TEST_FEW_FILES=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		addr, _ = strings.CutPrefix(lines.Text(), "address ")
		if addr == lines.Text() {
			addr = ""
		}
	}
	e := &edge{addr: addr}
	first := e.dial(t)
	var all []*dialog
	for range 20 { // more than the process has files for; the kernel completes the connections
		all = append(all, e.dialRaw(t))
	}
	first.cmd("NOOP", "250 ")
	last := all[len(all)-1]
	if err := last.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if line, err := last.r.ReadString('\n'); err == nil {
		t.Fatalf("the process has files for all: %q", line)
	}
	for _, d := range all[:len(all)-1] {
		d.Close()
	}
	last.want("220 ")
	first.cmd("QUIT", "221 ")
	in.Close()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process: %v", err)
	}
}

// serveWithFewFiles runs a gateway that may open eight files more until standard input ends.
func serveWithFewFiles(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxSessions = 100 }})
	probe, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // for its number only
	if err != nil {
		t.Fatal(err)
	}
	file, err := probe.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(file.Fd()) + 8, Max: uint64(file.Fd()) + 8}
	file.Close()
	probe.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	fmt.Println("address " + e.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
