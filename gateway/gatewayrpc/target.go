package gatewayrpc

import (
	"context"
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
	address string // as a spool told; empty where the connection is the caller's
	conn    Conn   // closed once nobody uses it; nil where the connection is the caller's
	uses    int    // guarded by Client.mu
}

// hearOf remembers the spools that s tells of.
func (c *Client) hearOf(s *stream, peers []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.peers = peers
	c.lookAround()
}

// lookAround has Run meet spools that others tell of.
func (c *Client) lookAround() {
	select {
	case c.told <- struct{}{}:
	default: // it looks at all of them
	}
}

// meet returns the spools that others tell of and to which no stream is kept yet. The caller releases them.
func (c *Client) meet(ctx context.Context) (unmet []*target) {
	if c.opts.Dial == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		for _, address := range s.peers {
			if c.met[address] {
				continue
			}
			conn, err := c.opts.Dial(address)
			if err != nil {
				c.opts.Logger.WarnContext(ctx, "no connection to a spool that another told of", "address", address, "error", err)
				continue
			}
			c.met[address] = true
			unmet = append(unmet, &target{
				SpoolServiceClient: spoolv1.NewSpoolServiceClient(conn), address: address, conn: conn, uses: 1,
			})
		}
	}
	return unmet
}

// part tells whether a spool that can't be reached is gone for good: there are others, and none tells of it.
func (c *Client) part(t *target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.address == "" || len(c.streams) == 0 ||
		slices.ContainsFunc(c.streams, func(s *stream) bool { return slices.Contains(s.peers, t.address) }) {
		return false
	}
	delete(c.met, t.address)
	return true
}

// release ends a use of a target.
func (c *Client) release(t *target) {
	c.mu.Lock()
	t.uses--
	last := t.uses == 0 && t.conn != nil
	c.mu.Unlock()
	if last {
		_ = t.conn.Close() // there is nothing on it any more
	}
}
