//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// network is a bridge with a node at each port.
type network struct {
	nodes map[string]*node
	self  *os.File // the caller's own namespace
}

// node is a network namespace with one link, eth0; or the caller's own, whose link is the bridge.
type node struct {
	name    string
	address string
	port    string   // the bridge's end of its link
	space   *os.File // the namespace
	self    *os.File // the caller's own
}

// ip changes something about the node's link, which the arguments name by %s.
func (n *node) ip(ctx context.Context, args string) error {
	if n.name == schedule.Client {
		return ip(ctx, fmt.Sprintf(args, bridge))
	}
	return ip(ctx, "-n "+n.name+" "+fmt.Sprintf(args, "eth0"))
}

const bridge = "chaos0"

// newNetwork makes the nodes. The caller's own namespace, which it changes, gets the bridge.
func newNetwork(ctx context.Context, names []string) (*network, error) {
	self, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	n := &network{nodes: map[string]*node{}, self: self}
	for _, args := range []string{
		"link set lo up", "link add " + bridge + " type bridge", "addr add " + Host + "/24 dev " + bridge, "link set " + bridge + " up",
	} {
		if err := ip(ctx, args); err != nil {
			return nil, err
		}
	}
	n.nodes[schedule.Client] = &node{name: schedule.Client, address: Host, space: self, self: self}
	for i, name := range names {
		one, err := n.add(ctx, name, i)
		if err != nil {
			return nil, err
		}
		n.nodes[name] = one
	}
	return n, nil
}

func (n *network) add(ctx context.Context, name string, i int) (*node, error) {
	one := &node{name: name, address: "10.77.0." + strconv.Itoa(10+i), port: "port" + strconv.Itoa(i), self: n.self}
	for _, args := range []string{
		"netns add " + name,
		"link add " + one.port + " type veth peer name eth0 netns " + name,
		"link set " + one.port + " master " + bridge + " up",
		"-n " + name + " addr add " + one.address + "/24 dev eth0",
		"-n " + name + " link set eth0 up",
		"-n " + name + " link set lo up",
	} {
		if err := ip(ctx, args); err != nil {
			return nil, err
		}
	}
	var err error
	one.space, err = os.Open("/run/netns/" + name) //nolint:gosec // where `ip netns` keeps it
	return one, err
}

// within runs a function in the node's namespace: what it starts or opens belongs there. A nil node is the caller's own.
func (n *node) within(f func() error) error {
	if n == nil {
		return f()
	}
	runtime.LockOSThread()
	if err := unix.Setns(int(n.space.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network of %s: %w", n.name, err)
	}
	err := f()
	if back := unix.Setns(int(n.self.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, and so ends with this goroutine: nobody else may run in the node's network.
		return fmt.Errorf("leaving the network of %s: %w", n.name, back)
	}
	runtime.UnlockOSThread()
	return err
}

// isolate takes the node's link down. Nobody is told: packets vanish.
func (n *network) isolate(ctx context.Context, name string) (func(context.Context) error, error) {
	port := n.nodes[name].port
	return func(ctx context.Context) error { return ip(ctx, "link set "+port+" up") }, ip(ctx, "link set "+port+" down")
}

// nowhere is a link-layer address that nobody has.
const nowhere = "02:00:00:00:00:01"

// partition lets both nodes send what is for the other to nobody.
func (n *network) partition(ctx context.Context, a, b string) (func(context.Context) error, error) {
	ends := [][2]*node{{n.nodes[a], n.nodes[b]}, {n.nodes[b], n.nodes[a]}}
	var undo undoing
	for _, e := range ends {
		if err := e[0].ip(ctx, "neigh replace "+e[1].address+" lladdr "+nowhere+" dev %s nud permanent"); err != nil {
			return undo.all, err
		}
		undo = append(undo, func(ctx context.Context) error { return e[0].ip(ctx, "neigh del "+e[1].address+" dev %s") })
	}
	return undo.all, nil
}

// undoing is what undoes the steps of a fault.
type undoing []func(context.Context) error

// all undoes every step, whatever becomes of the others.
func (u undoing) all(ctx context.Context) error {
	var errs []error
	for _, undo := range u {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

// slow makes the node's link late and lossy, or, where the kernel can't do that, narrow.
func (n *network) slow(ctx context.Context, name string) (func(context.Context) error, error) {
	for _, discipline := range []string{"netem delay 80ms 40ms loss 1%", "tbf rate 1mbit burst 16kb latency 800ms"} {
		if tc(ctx, "-n "+name+" qdisc add dev eth0 root "+discipline) != nil {
			continue
		}
		undo := undoing{func(ctx context.Context) error { return tc(ctx, "-n "+name+" qdisc del dev eth0 root") }}
		port := n.nodes[name].port
		err := tc(ctx, "qdisc add dev "+port+" root "+discipline)
		if err == nil {
			undo = append(undo, func(ctx context.Context) error { return tc(ctx, "qdisc del dev "+port+" root") })
		}
		return undo.all, err
	}
	return nil, fmt.Errorf("the kernel has neither the queueing discipline netem nor tbf")
}

// breakConnections resets every TCP connection of a node.
func (n *network) breakConnections(ctx context.Context, name string) error {
	return n.nodes[name].within(func() error { return tool(ctx, "ss", "-K -H -n -t") })
}

func ip(ctx context.Context, args string) error { return tool(ctx, "ip", args) }
func tc(ctx context.Context, args string) error { return tool(ctx, "tc", args) }

// tool runs a program of iproute2.
func tool(ctx context.Context, name, args string) error {
	out, err := command(context.WithoutCancel(ctx), append([]string{name}, strings.Fields(args)...), nil)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args, err, out)
	}
	return nil
}

// command runs a program and returns what it said.
func command(ctx context.Context, args, env []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the program's own words
	cmd.Env = env
	return cmd.CombinedOutput()
}
