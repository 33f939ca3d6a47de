//go:build processes

package e2e

import (
	"net"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// SIGHUP: the gateway loads its configuration again, and a session goes through it with its message; a bad file changes
// nothing and is told in one line. The other services live on.
func TestHangup(t *testing.T) {
	p := startProcesses(t)
	session, err := smtp.Dial(p.SMTP())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close() //nolint:errcheck // only to end it
	if err := session.Mail("ann@a.example"); err != nil {
		t.Fatal(err)
	}
	size := func() string {
		c, err := smtp.Dial(p.SMTP())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // only to end it
		_, limit := c.Extension("SIZE")
		return limit
	}
	added := freePort(t)
	p.Reconfigure(func(cfg *services.Config) {
		cfg.Gateway.MaxSize = 123_456
		cfg.Gateway.Listeners = append(cfg.Gateway.Listeners, gateway.Listener{Listen: added})
		cfg.Parser.Capacity++
	})
	p.Hangup("gateway")
	waitForLog(t, p, `"configuration loaded again"`)
	waitForLog(t, p, `"takes effect at the next start","service":"gateway","keys":"parser.capacity"`)
	if got := size(); got != "123456" {
		t.Errorf("a new session may send %s octets", got)
	}
	if c, err := smtp.Dial(added); err != nil {
		t.Errorf("the new listener: %v", err)
	} else {
		_ = c.Close()
	}

	if err := os.WriteFile(filepath.Join(p.Running().Data, "rohrpost.yaml"), []byte("gateway:\n  max_size: 5\n  max_recipients: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Hangup("gateway")
	waitForLog(t, p, `"level":"ERROR","msg":"configuration not loaded, the old one stays; mend it and send SIGHUP again","service":"gateway","error":"gateway.max_size 5 is too small`)
	if got := size(); got != "123456" {
		t.Errorf("after a bad file a session may send %s octets", got)
	}

	for _, service := range []string{"spool", "parser", "filter", "deliver", "console"} {
		p.Hangup(service)
		waitForLog(t, p, `"msg":"SIGHUP: only the gateway loads its configuration again; here all takes effect at the next start","service":"`+service+`"`)
	}
	content := mail("hangup", "Hello.\r\n")
	if err := session.Reset(); err != nil {
		t.Fatal(err)
	}
	id, err := p.SendOn(session, "ann@a.example", []string{"bob@b.example"}, content)
	if err != nil {
		t.Fatalf("the session from before: %v", err)
	}
	checkArrived(t, p, content, p.WaitEnded(id))
}

// waitForLog waits until a line with a text is in the log.
func waitForLog(t *testing.T, p *rohrtest.Pipeline, text string) {
	t.Helper()
	for deadline := time.Now().Add(rohrtest.Patience); !strings.Contains(p.Log(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %s", text)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}
