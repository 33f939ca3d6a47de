//go:build processes

package e2e

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/deliver"
	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// kill -9 of deliver behind its permit: the next hop has all of the mail, and nobody ever hears its reply. The attempt is unknown,
// the journal says so, and the mail is sent again under the policy for that (P3).
func TestDeliverKilledBehindItsPermit(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	hop := startSilentHop(t)
	p := rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithConfig(func(cfg *services.Config) {
		cfg.Spool.UnknownDelay, cfg.Spool.ReturnGrace = time.Second, 2*time.Second
		cfg.Deliver.Routes = append([]deliver.Route{{
			Match: []pattern.Pattern{pattern.MustParse("hop.example")}, Via: deliver.ViaSMTP, SMTP: deliver.SMTPRoute{Address: hop.address},
		}}, cfg.Deliver.Routes...)
	}))
	id := sendSoon(t, p, "bob@hop.example", mail("unknown", "Hello.\r\n"))
	select {
	case <-hop.silent:
	case <-time.After(rohrtest.Patience):
		t.Fatal("the mail does not come")
	}
	p.Kill("deliver")
	p.StartProcess("deliver")
	m := p.WaitEnded(id)
	journal := events(m.GetJournal())
	if s := m.GetSummary().GetRecipients()[0].GetState(); s != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
		t.Errorf("it ended as %v: %v", s, journal)
	}
	checkAttempts(t, id, journal)
	if n := hop.mails.Load(); n != 2 || count(journal, "unknown") != 1 || count(journal, "permitted") != 2 {
		t.Errorf("the next hop got it %d times, want twice, the first time unknown: %v", n, journal)
	}
	p.CheckAudit()
}

// kill -9 of the gateway when its message is durable, before the 250: the client heard nothing and sends again. Nothing is lost,
// and the second message is known as a duplicate (P3).
func TestGatewayKilledBeforeThe250(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := rohrtest.Start(t, rohrtest.WithProcesses(binary), rohrtest.WithConfig(func(cfg *services.Config) {
		cfg.Spool.Unsafe = true // it allows faults; the database keeps what it commits all the same
	}))
	p.Kill("spool")
	p.StartProcess("spool", "ROHRPOST_SPOOL_FAULTS=accept.durable=stall:10s")
	content := mail("again", "Hello.\r\n")
	send := func() (string, error) { return p.TrySend("ann@a.example", []string{"bob@b.example"}, content) }
	cut := make(chan error, 1)
	go func() {
		for {
			_, err := send()
			if err == nil || !refused(err) { // the gateway refuses for as long as it has no spool
				cut <- err
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	var first string
	for deadline := time.Now().Add(rohrtest.Patience); first == ""; time.Sleep(20 * time.Millisecond) {
		list, err := p.Admin().ListMessages(t.Context(), &adminv1.ListMessagesRequest{})
		if err == nil && len(list.GetMessages()) > 0 {
			first = list.GetMessages()[0].GetId()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the message does not become durable: %v", err)
		}
	}
	p.Kill("gateway")
	if err := <-cut; err == nil {
		t.Fatal("the client got its 250")
	}
	if m := p.WaitEnded(first); m.GetSummary().GetRecipients()[0].GetState() != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
		t.Errorf("it ended as %v: %v", m.GetSummary(), events(m.GetJournal()))
	}
	p.StartProcess("gateway")
	second := sendSoon(t, p, "bob@b.example", content)
	if journal := events(p.WaitEnded(second).GetJournal()); !slices.Contains(journal, "suspected_duplicate") {
		t.Errorf("nobody knows that it is a duplicate: %v", journal)
	}
	if n := len(p.Mail("bob@b.example")); n != 2 {
		t.Errorf("it lies there %d times, want twice: of both the client could not know", n)
	}
	p.CheckAudit()
}

// sendSoon sends a mail as soon as the gateway has its spool.
func sendSoon(t *testing.T, p *rohrtest.Pipeline, to string, content []byte) string {
	t.Helper()
	for deadline := time.Now().Add(rohrtest.Patience); ; time.Sleep(50 * time.Millisecond) {
		id, err := p.TrySend("ann@a.example", []string{to}, content)
		if err == nil {
			return id
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// refused tells whether an SMTP server answered, and said no.
func refused(err error) bool {
	var reply *textproto.Error
	return errors.As(err, &reply)
}

func count(journal []string, event string) int {
	n := 0
	for _, e := range journal {
		if e == event {
			n++
		}
	}
	return n
}

// silentHop is an SMTP server that never answers the end of the first mail.
type silentHop struct {
	address string
	mails   atomic.Int32 // that came in whole
	silent  chan struct{}
}

func startSilentHop(t *testing.T) *silentHop {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	h := &silentHop{address: l.Addr().String(), silent: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go h.serve(c)
		}
	}()
	return h
}

func (h *silentHop) serve(c net.Conn) {
	defer c.Close()
	reply := func(line string) { _, _ = io.WriteString(c, line+"\r\n") }
	reply("220 hop.example")
	inData := false
	for in := bufio.NewScanner(c); in.Scan(); {
		switch verb, _, _ := strings.Cut(strings.ToUpper(in.Text()), " "); {
		case inData && in.Text() == ".":
			inData = false
			if h.mails.Add(1) == 1 {
				close(h.silent)
				continue
			}
			reply("250 2.0.0 Ok")
		case inData:
		case verb == "DATA":
			inData = true
			reply("354 Go on")
		case verb == "QUIT":
			reply("221 2.0.0 Bye")
			return
		default:
			reply("250 2.0.0 Ok")
		}
	}
}
