package e2e

import (
	"testing"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// An operator cancels a message that waits for a dead destination, and bounces another: its sender is told.
func TestOperatorCommands(t *testing.T) {
	p := rohrtest.Start(t)
	for command, want := range map[adminv1.Command]mailv1.RecipientState{
		adminv1.Command_COMMAND_CANCEL: mailv1.RecipientState_RECIPIENT_STATE_CANCELLED,
		adminv1.Command_COMMAND_BOUNCE: mailv1.RecipientState_RECIPIENT_STATE_BOUNCED,
	} {
		id := p.Send("ann@a.example", []string{"bob@dead.test"}, mail("stuck", "Hello.\r\n"))
		p.Wait(id, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
		got, err := p.Admin().CommandMessage(t.Context(), &adminv1.CommandMessageRequest{Id: id, Command: command})
		if err != nil || !got.GetDone() {
			t.Fatalf("%s: %v, %v", command, got, err)
		}
		m := p.WaitEnded(id)
		if state := m.GetSummary().GetRecipients()[0].GetState(); state != want {
			t.Errorf("%s: it ended as %s: %v", command, state, m.GetJournal())
		}
	}
	for deadline := time.Now().Add(rohrtest.Patience); len(p.Mail("ann@a.example")) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sender got no notification")
		}
	}
	p.CheckAudit()
}

// An operator suspends a destination: its mail waits and says why, other mail goes on. Resumed, it goes on as well.
func TestSuspendedDestination(t *testing.T) {
	p := rohrtest.Start(t)
	const reason = "its disk is changed"
	if _, err := p.Admin().SuspendDestination(t.Context(), &adminv1.SuspendDestinationRequest{Pattern: "*.slow.example", Reason: reason}); err != nil {
		t.Fatal(err)
	}
	send := func() string {
		return p.Send("ann@a.example", []string{"bob@mx.slow.example", "bob@b.example"}, mail("suspended", "Hello.\r\n"))
	}
	var id string
	var recipients []*adminv1.RecipientStatus
	for deadline := time.Now().Add(rohrtest.Patience); ; { // until the spool has heard
		id = send()
		message, err := p.Admin().WaitMessage(t.Context(), &adminv1.WaitMessageRequest{
			By:    &adminv1.WaitMessageRequest_Id{Id: id},
			Until: []adminv1.MessageState{adminv1.MessageState_MESSAGE_STATE_DEFERRED, adminv1.MessageState_MESSAGE_STATE_ENDED},
		})
		if err != nil {
			t.Fatal(err)
		}
		if recipients = message.GetMessage().GetSummary().GetRecipients(); recipients[0].GetState() == mailv1.RecipientState_RECIPIENT_STATE_DEFERRED {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the destination is not suspended")
		}
	}
	if got := recipients[0].GetSuspension(); got.GetPattern() != "*.slow.example" || got.GetReason() != reason {
		t.Errorf("it waits for %v", got)
	}
	if recipients[1].GetState() != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
		t.Errorf("the other recipient is %v", recipients[1])
	}
	if _, err := p.Admin().ResumeDestination(t.Context(), &adminv1.ResumeDestinationRequest{Pattern: "*.slow.example"}); err != nil {
		t.Fatal(err)
	}
	if m := p.WaitEnded(id); m.GetSummary().GetRecipients()[0].GetState() != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
		t.Errorf("it ended as %v", m.GetSummary())
	}
	p.CheckAudit()
}
