//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// The tests run in namespaces of their own, as a chaos run does.
func TestMain(m *testing.M) {
	if !Inside() {
		code, err := Enter(context.Background(), os.Args[1:])
		if err != nil {
			os.Exit(untested(err))
		}
		os.Exit(code)
	}
	if err := Settle(); err != nil {
		os.Exit(untested(err))
	}
	os.Exit(m.Run())
}

// untested is the exit code where there are no namespaces: a failure in CI, of which nobody reads what passed, unless it has
// found and told that this machine makes none.
func untested(why error) int {
	fmt.Println("LOUD: chaos's cluster is NOT tested:", why)
	if os.Getenv("CI") == "true" && os.Getenv("ROHRCHAOS_NO_NAMESPACES") == "" {
		return 1
	}
	return 0
}

// patience bounds every wait.
const patience = 20 * time.Second

// reach tells whether a connection from one node to a listener comes about within a moment.
func reach(n *node, address string) bool {
	err := n.within(func() error {
		conn, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return err == nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestNetwork(t *testing.T) {
	for _, name := range []string{"ip", "tc", "ss"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("LOUD: chaos's network is NOT tested: install iproute2")
		}
	}
	n, err := newNetwork(t.Context(), []string{"one", "two", "three"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // else it ends with the process; this lets the test run again in it
		for i, name := range []string{"one", "two", "three"} {
			say(t, fmt.Sprintf("ip link del port%d", i))
			say(t, "ip netns del "+name)
		}
		say(t, "ip link del "+bridge)
	}()
	var lis net.Listener
	err = n.nodes["two"].within(func() error {
		lis, err = net.Listen("tcp", n.nodes["two"].address+":99") //nolint:noctx // a test's
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	from := func(name string) func() bool {
		return func() bool { return reach(n.nodes[name], lis.Addr().String()) }
	}
	for _, name := range []string{"one", "three", schedule.Client} {
		eventually(t, name+" never reaches two", from(name))
	}

	for what, c := range map[string]struct {
		make  func(context.Context) (func(context.Context) error, error)
		parts []string // from whom two is parted
		still []string
	}{
		"isolate":   {func(ctx context.Context) (func(context.Context) error, error) { return n.isolate(ctx, "two") }, []string{"one", schedule.Client}, nil},
		"partition": {func(ctx context.Context) (func(context.Context) error, error) { return n.partition(ctx, "one", "two") }, []string{"one"}, []string{"three"}},
		"partition from client": {func(ctx context.Context) (func(context.Context) error, error) {
			return n.partition(ctx, "two", schedule.Client)
		}, []string{schedule.Client}, []string{"one"}},
		"slow": {func(ctx context.Context) (func(context.Context) error, error) { return n.slow(ctx, "two") }, nil, []string{"one"}},
	} {
		undo, err := c.make(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, name := range c.parts {
			if from(name)() {
				t.Errorf("%s: %s still reaches two", what, name)
			}
		}
		for _, name := range c.still {
			eventually(t, what+": "+name+" does not reach two", from(name))
		}
		if err := undo(t.Context()); err != nil {
			t.Fatalf("undoing %s: %v", what, err)
		}
		eventually(t, what+" is undone, but one does not reach two", from("one"))
		eventually(t, what+" is undone, but the client does not reach two", from(schedule.Client))
	}
	testHalf(t, n)
	testBreak(t, n, lis)
}

// testHalf makes faults of which the second step can't be made: the first is undone.
func testHalf(t *testing.T, n *network) {
	t.Helper()
	neighbours := func() string { return say(t, "ip -n one neigh show nud permanent") }
	n.nodes["nobody"] = &node{name: "nobody", address: "10.77.0.99"}
	undo, err := n.partition(t.Context(), "one", "nobody")
	if err == nil || !strings.Contains(neighbours(), nowhere) {
		t.Fatalf("a partition from a node that there is not: %v, %q", err, neighbours())
	}
	_ = undo(t.Context())
	if left := neighbours(); left != "" {
		t.Errorf("half of a partition is left: %q", left)
	}
	disciplines := func() string { return say(t, "tc -n three qdisc show dev eth0") }
	before := disciplines()
	n.nodes["three"].port = "noport"
	undo, err = n.slow(t.Context(), "three")
	if err == nil || disciplines() == before {
		t.Fatalf("a slow link without its other end: %v, %q", err, disciplines())
	}
	_ = undo(t.Context())
	if after := disciplines(); after != before {
		t.Errorf("half of a slow link is left: %q, was %q", after, before)
	}
}

// say runs a program and returns what it says.
func say(t *testing.T, line string) string {
	t.Helper()
	out, err := command(t.Context(), strings.Fields(line), nil)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// testBreak breaks a connection: the side that did nothing learns of it.
func testBreak(t *testing.T, n *network, lis net.Listener) {
	t.Helper()
	accepted := make(chan net.Conn, 16)
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	conn, err := net.Dial("tcp", lis.Addr().String()) //nolint:noctx // a test's
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for other := range accepted { // those of the tests before come first
		if other.RemoteAddr().String() == conn.LocalAddr().String() {
			break
		}
	}
	if err := n.breakConnections(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other side sees %v, want a reset", err)
	}
}

func TestDisk(t *testing.T) {
	d, err := newDisk(t.TempDir(), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.unmount()
	file := filepath.Join(d.path, "file")
	write := func() error { return os.WriteFile(file, make([]byte, 64<<10), 0o600) }
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	if err := d.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("writing to a disk that was freed: %v", err)
	}
}

// state is a process's state: S, T for stopped, and so on. (proc(5).)
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

func TestProcess(t *testing.T) {
	var notes []string
	p := &Process{
		Name: "shell", args: []string{"/bin/sh", "-c", "sleep 1000 & wait"}, log: filepath.Join(t.TempDir(), "log"),
		note: func(node, how string) { notes = append(notes, node+": "+how) },
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	tree := func() bool { pids = p.tree(); return len(pids) == 2 }
	eventually(t, "the shell has no child", tree)

	if err := p.Start(); err != nil || len(p.tree()) != 2 || p.tree()[0] != pids[0] {
		t.Errorf("a second start: %v; the processes were %v and are %v", err, pids, p.tree())
	}
	if files, err := p.Files(); err != nil || files["file"] == 0 {
		t.Errorf("it has %v open: %v", files, err)
	}

	undo, err := p.fault(schedule.Pause)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		eventually(t, "a process is not stopped", func() bool { return state(pid) == "T" })
	}
	if err := undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shell does not go on", func() bool { return state(pids[0]) == "S" })

	first := pids[0]
	sendAll(pids, syscall.SIGKILL) // not by a fault: it comes back
	eventually(t, "the shell is not started again", func() bool { return tree() && pids[0] != first })
	if len(notes) != 1 {
		t.Errorf("notes %v, want one of an end that nobody asked for", notes)
	}
	undo, err = p.fault(schedule.Kill)
	if err != nil {
		t.Fatal(err)
	}
	if left := p.tree(); len(left) != 0 {
		t.Errorf("%v are left after a kill", left)
	}
	time.Sleep(2 * restartDelay)
	if left := p.tree(); len(left) != 0 {
		t.Error("it was started again though a fault had killed it")
	}
	if err := undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
