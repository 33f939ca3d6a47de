package e2e

import (
	"bytes"
	"context"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/filter"
	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// A permanent failure ends with one notification to the sender; the notification of a notification does not exist
// (cases F1, F2).
func TestBounce(t *testing.T) {
	p := rohrtest.Start(t)
	id := p.Send("ann@a.example", []string{"nobody@bounce.test", "bob@b.example"}, mail("bounce", "Hello.\r\n"))
	m := p.WaitEnded(id)
	states := m.GetSummary().GetRecipients()
	if states[0].GetState() != mailv1.RecipientState_RECIPIENT_STATE_BOUNCED || states[1].GetState() != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
		t.Errorf("states: %v", states)
	}
	notes := waitMail(t, p, "ann@a.example", 1)
	for _, want := range []string{"multipart/report", "nobody@bounce.test", "5.1.1", "Subject: bounce"} {
		if !bytes.Contains(notes[0], []byte(want)) {
			t.Errorf("the notification lacks %q:\n%s", want, notes[0])
		}
	}
	// A message of the null sender that bounces tells nobody.
	id = p.Send("", []string{"nobody@bounce.test"}, mail("nullsender", "Hello.\r\n"))
	if s := p.WaitEnded(id).GetSummary().GetRecipients()[0].GetState(); s != mailv1.RecipientState_RECIPIENT_STATE_BOUNCED {
		t.Errorf("null sender: %v", s)
	}
	list, err := p.Admin().ListMessages(context.Background(), &adminv1.ListMessagesRequest{})
	if err != nil || len(list.GetMessages()) != 3 {
		t.Errorf("%d messages, want two mails and one notification (%v)", len(list.GetMessages()), err)
	}
}

func waitMail(t *testing.T, p *rohrtest.Pipeline, address string, n int) [][]byte {
	t.Helper()
	for deadline := time.Now().Add(rohrtest.Patience); ; time.Sleep(20 * time.Millisecond) {
		if mails := p.Mail(address); len(mails) >= n {
			return mails
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s got %d mails, want %d", address, len(p.Mail(address)), n)
		}
	}
}

// A closed port defers the message, and the attempt is told in its journal.
func TestDeadDestinationDefers(t *testing.T) {
	p := rohrtest.Start(t)
	id := p.Send("ann@a.example", []string{"bob@dead.test"}, mail("dead", "Hello.\r\n"))
	m := p.Wait(id, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
	r := m.GetSummary().GetRecipients()[0]
	if r.GetState() != mailv1.RecipientState_RECIPIENT_STATE_DEFERRED || r.GetNextAt() == nil || r.GetLastReply().GetText() == "" {
		t.Errorf("got %v, want deferred with the time of the next attempt and the reason", r)
	}
	if !strings.Contains(strings.Join(events(m.GetJournal()), " "), "deferred") {
		t.Errorf("journal: %v", events(m.GetJournal()))
	}
}

// policies has a rule for each action: a mail names the one that it wants in its subject.
func policies(cfg *services.Config) {
	for _, action := range []filter.Action{filter.Reject, filter.Hold, filter.Defer, filter.Discard} {
		cfg.Filter.Rules = append(cfg.Filter.Rules, filter.Rule{
			Name: "try " + string(action), When: `message.subject == "` + string(action) + `"`, Action: action,
		})
	}
}

// Each action of a rule has its effect on mail that was accepted before it was judged.
func TestPolicies(t *testing.T) {
	p := rohrtest.Start(t, rohrtest.WithConfig(func(cfg *services.Config) {
		cfg.Spool.VerdictWait = 0
		policies(cfg)
	}))
	for subject, want := range map[string]mailv1.RecipientState{
		"reject":  mailv1.RecipientState_RECIPIENT_STATE_HELD, // a late refusal is held, without a notification
		"hold":    mailv1.RecipientState_RECIPIENT_STATE_HELD,
		"defer":   mailv1.RecipientState_RECIPIENT_STATE_DEFERRED,
		"discard": mailv1.RecipientState_RECIPIENT_STATE_DISCARDED,
		"fine":    mailv1.RecipientState_RECIPIENT_STATE_DELIVERED,
	} {
		id := p.Send("ann@a.example", []string{"bob@b.example"}, mail(subject, "Hello.\r\n"))
		m := p.Wait(id, adminv1.MessageState_MESSAGE_STATE_HELD, adminv1.MessageState_MESSAGE_STATE_DEFERRED, adminv1.MessageState_MESSAGE_STATE_ENDED)
		if got := m.GetSummary().GetRecipients()[0].GetState(); got != want {
			t.Errorf("%s: got %v, want %v", subject, got, want)
		}
	}
	if mails := p.Mail("bob@b.example"); len(mails) != 1 {
		t.Errorf("%d mails arrived, want only the fine one", len(mails))
	}
}

// A second start finds everything as it was: what waited waits, what ended is told.
func TestSecondStart(t *testing.T) {
	data := rohrtest.TempDir(t)
	p, stop := rohrtest.StartUntil(t, rohrtest.WithData(data))
	ended := p.Send("ann@a.example", []string{"bob@b.example"}, mail("ended", "Hello.\r\n"))
	waiting := p.Send("ann@a.example", []string{"bob@dead.test"}, mail("waiting", "Hello.\r\n"))
	p.WaitEnded(ended)
	p.Wait(waiting, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
	stop()

	p = rohrtest.Start(t, rohrtest.WithData(data))
	p.WaitEnded(ended)
	m := p.Wait(waiting, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
	if len(m.GetJournal()) == 0 {
		t.Error("the journal is gone")
	}
}

// RFC 3461: who asks for it is told of a success, by the id and address that he knows, and not of what he did not ask about.
func TestNotificationOfSuccess(t *testing.T) {
	p := rohrtest.Start(t)
	c, err := smtp.Dial(p.SMTP())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the mail is sent by then
	if err := c.Hello("client.test"); err != nil {
		t.Fatal(err)
	}
	if ok, _ := c.Extension("DSN"); !ok {
		t.Error("DSN is not announced")
	}
	for _, command := range []string{
		"MAIL FROM:<ann@a.example> ENVID=QQ314159",
		"RCPT TO:<bob@b.example> NOTIFY=SUCCESS ORCPT=rfc822;robert@b.example",
		"RCPT TO:<cy@b.example>",
	} {
		if err := c.Text.PrintfLine("%s", command); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Text.ReadResponse(250); err != nil {
			t.Fatal(err)
		}
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(mail("success", "Hello.\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	notes := waitMail(t, p, "ann@a.example", 1)
	for _, want := range []string{
		"Original-Envelope-Id: QQ314159", "Original-Recipient: rfc822; robert@b.example", "Final-Recipient: rfc822; bob@b.example",
		"Action: delivered", "Status: 2.0.0", "Subject: success",
	} {
		if !strings.Contains(string(notes[0]), want) {
			t.Errorf("the notification lacks %q:\n%s", want, notes[0])
		}
	}
	if len(notes) > 1 || strings.Contains(string(notes[0]), "cy@b.example") {
		t.Errorf("%d notifications, the first:\n%s", len(notes), notes[0])
	}
}
