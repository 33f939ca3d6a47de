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
