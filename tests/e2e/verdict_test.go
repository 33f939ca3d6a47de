package e2e

import (
	"errors"
	"net/textproto"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rohrpost/rohrpost/filter"
	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// The verdict comes before the reply: who sends what a rule refuses is told so, in the rule's words, and nothing is kept.
func TestVerdictBeforeReply(t *testing.T) {
	p := rohrtest.Start(t, rohrtest.WithConfig(func(cfg *services.Config) {
		policies(cfg)
		cfg.Filter.Rules[0].Reply = filter.Reply{Code: 554, Text: "We take no advertisements"}
	}))
	// Until a parser and a filter are there, nobody is told a verdict.
	first := p.Send("ann@a.example", []string{"bob@b.example"}, mail("fine", "Hello.\r\n"))
	p.WaitEnded(first)
	for subject, want := range map[string]textproto.Error{
		"reject": {Code: 554, Msg: "5.7.1 We take no advertisements"},
		"defer":  {Code: 451, Msg: "4.7.1 Deferred by policy, try again later"},
	} {
		_, err := p.TrySend("ann@a.example", []string{"bob@b.example"}, mail(subject, "Hello.\r\n"))
		var reply *textproto.Error
		if !errors.As(err, &reply) || *reply != want {
			t.Errorf("%s: told %v, want %v", subject, err, &want)
		}
	}
	list, err := p.Admin().ListMessages(t.Context(), &adminv1.ListMessagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.GetMessages()); n != 1 {
		t.Errorf("%d messages are kept of those that were refused", n-1)
	}
	id := p.Send("ann@a.example", []string{"bob@b.example"}, mail("fine", "Hello.\r\n"))
	m, err := p.Admin().GetMessage(t.Context(), &adminv1.GetMessageRequest{Id: id})
	if status.Code(err) == codes.NotFound || err != nil {
		t.Fatal(err)
	}
	if m.GetMessage().GetVerdict().GetRecipients()[0].GetAction() != mailv1.Action_ACTION_ACCEPT {
		t.Errorf("the verdict is %v as soon as the mail is accepted", m.GetMessage().GetVerdict())
	}
	p.WaitEnded(id)
}
