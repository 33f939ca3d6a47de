package gatewayrpc

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// Conn is a connection that the client closes; a *grpc.ClientConn is one.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// target is a spool to open streams to.
type target struct {
	spoolv1.SpoolServiceClient
	conn Conn // closed once nobody uses it; nil where the connection is the caller's
	uses int  // guarded by Client.mu
}

// pick returns the next spool to try: first those that the last one told of, since that is stopping or gone, then those that
// were given. The caller releases it.
func (c *Client) pick() (*target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.next % (len(c.peers) + len(c.given))
	c.next++
	if i >= len(c.peers) {
		return c.use(c.given[i-len(c.peers)]), nil
	}
	conn, err := c.opts.Dial(c.peers[i])
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", c.peers[i], err)
	}
	return c.use(&target{SpoolServiceClient: spoolv1.NewSpoolServiceClient(conn), conn: conn}), nil
}

// use counts a use. c.mu must be held.
func (c *Client) use(t *target) *target {
	t.uses++
	return t
}

func (c *Client) release(t *target) {
	c.mu.Lock()
	t.uses--
	last := t.uses == 0 && t.conn != nil
	c.mu.Unlock()
	if last {
		_ = t.conn.Close() // there is nothing on it any more
	}
}

// hearOf remembers the spools that the one which is connected tells of, in an order of this gateway's own, so that not all
// gateways go to the same one.
func (c *Client) hearOf(peers []string) {
	if c.opts.Dial == nil {
		return
	}
	peers = slices.Clone(peers)
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] }) //nolint:gosec // balance needs no secret
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers, c.next = peers, 0
}
