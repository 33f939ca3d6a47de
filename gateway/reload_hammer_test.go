package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// Clients come and go while the configuration is loaded again and again: none is refused or reset, each message is accepted
// once, and each session sees one configuration only.
func TestReloadUnderTraffic(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) {
		c.Listeners = append(c.Listeners, gateway.Listener{Listen: "127.0.0.1:0"})
	}})
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var sent atomic.Int64
	for i := range 8 {
		addr := e.addrs[i%2].String()
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := sendOne(t.Context(), addr); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				sent.Add(1)
			}
		})
	}
	const reloads = 100
	for i := range reloads {
		e.mustReload(t, func(c *gateway.Config) {
			c.Hostname = fmt.Sprintf("h%d.test", i)
			switch i % 3 {
			case 0: // one that comes and goes
				c.Listeners = append(c.Listeners[:2], gateway.Listener{Listen: "127.0.0.1:0"})
			case 1:
				c.Listeners = c.Listeners[:2]
				c.Listeners[0], c.Listeners[1] = c.Listeners[1], c.Listeners[0]
			}
		})
		want := sent.Load() + 2
		waitFor(t, "traffic", func() bool { return sent.Load() >= want || t.Failed() })
	}
	stop()
	clients.Wait()
	e.stop()
	if stored := int64(len(e.spool.all())); stored != sent.Load() {
		t.Errorf("%d messages stored, %d sent", stored, sent.Load())
	}
	t.Logf("%d messages through %d reloads", sent.Load(), reloads)
}

// sendOne sends a message in a session of its own.
func sendOne(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	host := ""
	for _, step := range []struct{ send, want string }{
		{"", "220 "},
		{"EHLO c.test\r\n", "250-"},
		{"MAIL FROM:<a@c.test>\r\n", "250 "},
		{"RCPT TO:<b@x.test>\r\n", "250 "},
		{"DATA\r\n", "354 "},
		{"x\r\n.\r\n", "250 "},
		{"QUIT\r\n", "221 "},
	} {
		if _, err := conn.Write([]byte(step.send)); err != nil {
			return fmt.Errorf("sending %q: %w", step.send, err)
		}
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("behind %q: %w", step.send, err)
		}
		if !strings.HasPrefix(line, step.want) {
			return fmt.Errorf("reply to %q: %q", step.send, line)
		}
		switch step.want {
		case "220 ":
			host = strings.Fields(line)[1]
		case "250-":
			if strings.Fields(line[4:])[0] != host {
				return errors.New("greeted by " + host + ", answered by another: " + line)
			}
			for strings.HasPrefix(line, "250-") {
				if line, err = r.ReadString('\n'); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
